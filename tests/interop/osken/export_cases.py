"""Prints os-ken's OpenFlow 1.3 switch test cases, one JSON object a line.

The cases come with the os_ken package (os_ken/tests/switch/of13). Its own objects turn them into
OpenFlow messages and packets, so nothing of them is interpreted here:

    {"file": "match/00_IN_PORT.json", "case": "...", "setup": [HEX, ...],
     "tests": [{"packet": HEX, "expect": "egress" | "packet_in" | "table_miss" | "throughput", ...}]}

Usage: export_cases.py [FILE_PREFIX ...]      e.g.  export_cases.py match/ action/17
"""

import json
import logging
import os
import sys

from os_ken.ofproto import ofproto_v1_3
from os_ken.tests.switch import tester


def cases(path):
    with open(path) as text:
        return [case for case in json.load(text) if isinstance(case, dict)]


def hexed(message):
    return bytes(message.buf).hex()


def describe(test):
    if "packets" in test:
        packets = test["packets"]
        described = {
            "packet": packets["packet_binary"].hex(),
            "packets_per_second": packets["pktps"],
            "seconds": packets["duration_time"],
        }
    else:
        described = {"packet": test["ingress"].hex()}
    if "egress" in test:
        return described | {"expect": "egress", "bytes": test["egress"].hex()}
    if "PACKET_IN" in test:
        return described | {"expect": "packet_in", "bytes": test["PACKET_IN"].hex()}
    if "table-miss" in test:
        return described | {"expect": "table_miss", "tables": test["table-miss"]}
    flows = []
    for one in test["throughput"]:
        one["OFPFlowMod"].serialize()
        flows.append(
            {
                "flow_mod": hexed(one["OFPFlowMod"]),
                "kilobits_per_second": one["kbps"],
                "packets_per_second": one["pktps"],
            }
        )
    return described | {"expect": "throughput", "flows": flows}


def main(prefixes):
    tester.OfTester.target_ver = ofproto_v1_3.OFP_VERSION
    tester.OfTester.tester_ver = ofproto_v1_3.OFP_VERSION
    root = os.path.join(os.path.dirname(tester.__file__), "of13")
    names = sorted(
        os.path.relpath(os.path.join(directory, name), root)
        for directory, _, files in os.walk(root)
        for name in files
        if name.endswith(".json")
    )
    for name in names:
        if prefixes and not any(name.startswith(prefix) for prefix in prefixes):
            continue
        for case in tester.TestFile(os.path.join(root, name), logging.getLogger()).tests:
            print(
                json.dumps(
                    {
                        "file": name,
                        "case": case.description,
                        "setup": [hexed(message) for message in case.prerequisite],
                        "tests": [describe(test) for test in case.tests],
                    }
                )
            )


if __name__ == "__main__":
    main(sys.argv[1:])
