"""Runs os-ken applications as a controller: controller.py PORT MODULE...

Older releases of os-ken came with applications that newer ones leave out. They are looked for in
`os-ken-apps` under the prefix of the running Python as well, where `.ci/run` puts them as they were
released. `controller.py --find NAME` tells by its exit status whether application NAME is there.
"""

import importlib.util
import pathlib
import sys

from os_ken.lib import hub

hub.patch()

# Only now: what follows takes the patched sockets.
import os_ken.app
from os_ken import cfg, log
from os_ken.base.app_manager import AppManager
from os_ken.controller import controller  # noqa: F401  (it registers the options used below)

os_ken.app.__path__.append(str(pathlib.Path(sys.prefix, "os-ken-apps", "os_ken", "app")))

first, *modules = sys.argv[1:]
if first == "--find":
    sys.exit(any(importlib.util.find_spec(f"os_ken.app.{name}") is None for name in modules))

log.early_init_log()
cfg.CONF(
    args=["--ofp-listen-host", "127.0.0.1", "--ofp-tcp-listen-port", first],
    project="os_ken",
    default_config_files=[],
)
log.init_log()
AppManager.run_apps(["os_ken.controller.ofp_handler", *modules])
