//! A real Open vSwitch to compare with.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tollgate_openflow::message::{HEADER_BYTES, Hello, SwitchConfig};
use tollgate_openflow::multipart::{FlowStats, FlowStatsRequest, MultipartReply, MultipartRequest};
use tollgate_openflow::{ErrorCode, FlowCommand, FlowMod, Header, Message};

use super::rules::PORTS;

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
const PATIENCE: Duration = Duration::from_secs(20);

/// `ovs-vswitchd` with a bridge of dummy ports, unprivileged, in a directory of its own.
pub(super) struct Ovs {
    /// Removed when the daemons have ended.
    _directory: tempfile::TempDir,
    daemons: Vec<Child>,
    openflow: UnixStream,
    control: UnixStream,
}

impl Drop for Ovs {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

/// Why the peer cannot be used.
fn skip(reason: &str) -> Option<Ovs> {
    assert!(std::env::var_os("REQUIRE_PEERS").is_none(), "{reason}");
    #[allow(clippy::print_stdout, reason = "a skipped test says so")]
    {
        println!("SKIP: {reason}");
    }
    None
}

fn connect(path: &Path) -> UnixStream {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match UnixStream::connect(path) {
            Ok(stream) => return stream,
            Err(error) => assert!(Instant::now() < deadline, "{}: {error}", path.display()),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl Ovs {
    pub(super) fn start() -> Option<Self> {
        let installed = |program: &str| Command::new(program).arg("--version").output().is_ok();
        if !installed("ovs-vswitchd") || !installed("ovsdb-server") || !Path::new(SCHEMA).exists() {
            return skip("openvswitch-switch is not installed");
        }
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let database = path("conf.db");
        let command = |program: &str, arguments: &[String]| {
            let mut command = Command::new(program);
            for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
                command.env(variable, directory.path());
            }
            command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
            command
        };
        let show = |path: std::path::PathBuf| path.display().to_string();
        let create = ["create".to_owned(), show(database.clone()), SCHEMA.to_owned()];
        assert!(command("ovsdb-tool", &create).status().unwrap().success());
        let db = format!("unix:{}", show(path("db.sock")));
        let mut daemons = Vec::new();
        let arguments = [
            show(database),
            format!("--remote=p{db}"),
            format!("--unixctl={}", show(path("db.ctl"))),
        ];
        daemons.push(command("ovsdb-server", &arguments).spawn().unwrap());
        connect(&path("db.sock"));
        let vsctl = |words: &str| {
            let words = words.split_whitespace().map(str::to_owned);
            let arguments: Vec<_> = [format!("--db={db}")].into_iter().chain(words).collect();
            assert!(command("ovs-vsctl", &arguments).status().unwrap().success());
        };
        vsctl("--no-wait init");
        let arguments = [
            db.clone(),
            "--enable-dummy=override".to_owned(),
            "--disable-system".to_owned(),
            format!("--unixctl={}", show(path("switch.ctl"))),
        ];
        daemons.push(command("ovs-vswitchd", &arguments).spawn().unwrap());
        vsctl("set Open_vSwitch . other_config:vlan-limit=2 other_config:max-idle=3600000");
        vsctl(
            "add-br br0 -- set bridge br0 datapath_type=dummy fail-mode=secure protocols=OpenFlow13",
        );
        for ofport in 1..=PORTS {
            vsctl(&format!(
                "add-port br0 p{ofport} -- set interface p{ofport} type=dummy ofport_request={ofport}"
            ));
        }
        let mut openflow = connect(&path("br0.mgmt"));
        openflow.write_all(&Message::Hello(Hello::OURS).encode(0)).unwrap();
        // OFPC_FRAG_NX_MATCH.
        let config = SwitchConfig { flags: 3, miss_send_len: 0 };
        openflow.write_all(&Message::SetConfig(config).encode(0)).unwrap();
        let control = connect(&path("switch.ctl"));
        Some(Self { _directory: directory, daemons, openflow, control })
    }

    fn send(&mut self, message: &Message) {
        self.openflow.write_all(&message.encode(1)).unwrap();
    }

    fn receive(&mut self) -> Message {
        let mut bytes = vec![0; HEADER_BYTES];
        self.openflow.read_exact(&mut bytes).unwrap();
        let header = Header::decode(*bytes.first_chunk().unwrap()).unwrap();
        bytes.resize(usize::from(header.length), 0);
        self.openflow.read_exact(&mut bytes[HEADER_BYTES..]).unwrap();
        Message::decode(&bytes).unwrap().1
    }

    pub(super) fn flow_mod(&mut self, flow_mod: &FlowMod) -> Result<(), ErrorCode> {
        self.send(&Message::FlowMod(Box::new(flow_mod.clone())));
        self.send(&Message::BarrierRequest);
        let mut outcome = Ok(());
        loop {
            match self.receive() {
                Message::BarrierReply => return outcome,
                Message::Error(error) => outcome = Err(error.code),
                _ => {}
            }
        }
    }

    pub(super) fn clear(&mut self) {
        self.flow_mod(&FlowMod::new(FlowCommand::Delete)).unwrap();
    }

    pub(super) fn flows(&mut self, request: FlowStatsRequest) -> Vec<FlowStats> {
        self.send(&Message::MultipartRequest(MultipartRequest::Flow(request)));
        let mut flows = Vec::new();
        loop {
            if let Message::MultipartReply { reply: MultipartReply::Flow(part), more } =
                self.receive()
            {
                flows.extend(part);
                if !more {
                    return flows;
                }
            }
        }
    }

    /// Calls a method of `ovs-appctl`.
    pub(super) fn ask(&mut self, method: &str, params: &[&str]) -> String {
        let request = serde_json::json!({ "id": 0, "method": method, "params": params });
        self.control.write_all(request.to_string().as_bytes()).unwrap();
        let replies = serde_json::Deserializer::from_reader(&self.control);
        let reply: serde_json::Value = replies.into_iter().next().unwrap().unwrap();
        reply["result"].as_str().unwrap_or_else(|| panic!("{reply}")).to_owned()
    }

    /// A frame comes in through a port.
    pub(super) fn receive_frame(&mut self, ofport: u32, frame: &[u8]) {
        self.ask("netdev-dummy/receive", &[&format!("p{ofport}"), &hex(frame)]);
    }

    /// The ports that a frame reaches, sorted.
    pub(super) fn ports_reached(&mut self, ofport: u32, frame: &[u8]) -> Vec<u32> {
        // A trace with a packet learns from it.
        self.ask("fdb/flush", &["br0"]);
        let text = self.ask("ofproto/trace", &["br0", &format!("in_port={ofport}"), &hex(frame)]);
        let actions = text.lines().find_map(|line| line.strip_prefix("Datapath actions: "));
        let mut ports = outputs(actions.unwrap_or_else(|| panic!("{text}")));
        ports.sort_unstable();
        ports
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Port numbers among datapath actions, whatever stands in parentheses left out.
fn outputs(actions: &str) -> Vec<u32> {
    let mut depth = 0;
    let flat: String = actions
        .chars()
        .filter(|letter| {
            depth += i32::from(*letter == '(');
            let kept = depth == 0;
            depth -= i32::from(*letter == ')');
            kept
        })
        .collect();
    let numbers = flat.split(',').filter_map(|word| word.trim().parse().ok());
    numbers.filter(|port| *port <= PORTS).collect()
}
