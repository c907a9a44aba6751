//! A real Open vSwitch: its processes, its OpenFlow connection and its control socket.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tollgate_openflow::event::PacketIn;
use tollgate_openflow::message::{HEADER_BYTES, Hello, SwitchConfig};
use tollgate_openflow::multipart::{
    FlowStats, FlowStatsRequest, MultipartReply, MultipartRequest, TableStats,
};
use tollgate_openflow::{ErrorCode, FlowCommand, FlowMod, Header, Message};

use super::super::rules::PORTS;
use super::super::sim::Sent;
use super::captured::Captured;

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
const PATIENCE: Duration = Duration::from_secs(20);
/// Transaction number of the first of a batch of flow-mods.
const FIRST_FLOW_MOD: u32 = 1000;

/// `ovs-vswitchd` with a bridge of dummy ports, unprivileged, in a directory of its own.
pub(super) struct Ovs {
    /// Removed when the daemons have ended.
    directory: tempfile::TempDir,
    daemons: Vec<Child>,
    openflow: UnixStream,
    control: UnixStream,
    /// What ports 1 to [`PORTS`] send.
    captured: Vec<Captured>,
    /// Copies for the controller, which we are.
    packet_ins: Vec<PacketIn>,
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

/// Tries until it succeeds, or for too long.
fn patiently<T, E: std::fmt::Display>(what: &Path, mut attempt: impl FnMut() -> Result<T, E>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match attempt() {
            Ok(done) => return done,
            Err(error) => assert!(Instant::now() < deadline, "{}: {error}", what.display()),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn connect(path: &Path) -> UnixStream {
    patiently(path, || UnixStream::connect(path))
}

/// A program of Open vSwitch that keeps to the directory.
fn command(program: &str, directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
        command.env(variable, directory);
    }
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn show(path: PathBuf) -> String {
    path.display().to_string()
}

/// Whether decisions are cached. Packets that meet a cached decision are counted later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caching {
    Off,
    /// For as long as a test may take.
    On,
}

impl Ovs {
    pub(super) fn start(caching: Caching) -> Option<Self> {
        let installed = |program: &str| Command::new(program).arg("--version").output().is_ok();
        if !installed("ovs-vswitchd") || !installed("ovsdb-server") || !Path::new(SCHEMA).exists() {
            return skip("openvswitch-switch is not installed");
        }
        let directory = tempfile::tempdir().unwrap();
        let daemons = start_daemons(directory.path());
        configure(directory.path(), caching);
        let path = |name: &str| directory.path().join(name);
        let mut openflow = connect(&path("br0.mgmt"));
        openflow.write_all(&Message::Hello(Hello::OURS).encode(0)).unwrap();
        // OFPC_FRAG_NX_MATCH: the ports of first fragments can be matched.
        // Packets are sent to controllers of this kind only if they ask for some bytes.
        let config = SwitchConfig { flags: 3, miss_send_len: 128 };
        openflow.write_all(&Message::SetConfig(config).encode(0)).unwrap();
        let control = connect(&path("switch.ctl"));
        let captured = (1..=PORTS).map(|ofport| {
            let path = path(&format!("p{ofport}.pcap"));
            patiently(&path, || std::fs::metadata(&path));
            Captured::open(&path)
        });
        let captured = captured.collect();
        let packet_ins = Vec::new();
        Some(Self { directory, daemons, openflow, control, captured, packet_ins })
    }

    /// The next message that is no probe: those are answered.
    fn receive(&mut self) -> (u32, Message) {
        loop {
            let mut bytes = vec![0; HEADER_BYTES];
            self.openflow.read_exact(&mut bytes).unwrap();
            let header = Header::decode(*bytes.first_chunk().unwrap()).unwrap();
            bytes.resize(usize::from(header.length), 0);
            self.openflow.read_exact(&mut bytes[HEADER_BYTES..]).unwrap();
            match Message::decode(&bytes).unwrap().1 {
                Message::EchoRequest(data) => {
                    let reply = Message::EchoReply(data).encode(header.xid);
                    self.openflow.write_all(&reply).unwrap();
                }
                message => return (header.xid, message),
            }
        }
    }

    /// Carries out flow-mods; what became of each.
    pub(super) fn flow_mods(&mut self, flow_mods: &[FlowMod]) -> Vec<Result<(), ErrorCode>> {
        let mut bytes = Vec::new();
        for (xid, flow_mod) in (FIRST_FLOW_MOD..).zip(flow_mods) {
            bytes.extend(Message::FlowMod(Box::new(flow_mod.clone())).encode(xid));
        }
        bytes.extend(Message::BarrierRequest.encode(1));
        self.openflow.write_all(&bytes).unwrap();
        let mut outcomes = vec![Ok(()); flow_mods.len()];
        loop {
            match self.receive() {
                (_, Message::BarrierReply) => return outcomes,
                (_, Message::PacketIn(packet_in)) => self.packet_ins.push(*packet_in),
                (xid, Message::Error(error)) => {
                    outcomes[(xid - FIRST_FLOW_MOD) as usize] = Err(error.code);
                }
                _ => {}
            }
        }
    }

    /// Removes all flows and learned stations.
    pub(super) fn clear(&mut self) {
        assert_eq!(self.flow_mods(&[FlowMod::new(FlowCommand::Delete)]), [Ok(())]);
        self.ask("fdb/flush", &["br0"]);
    }

    /// Gives flows to `ovs-ofctl add-flows`, all or none; its complaint, if it has one.
    pub(super) fn add_flows(&self, flows: &str) -> Result<(), String> {
        let bridge = format!("unix:{}", show(self.directory.path().join("br0.mgmt")));
        let arguments = ["-O", "OpenFlow13", "--bundle", "add-flows", &bridge, "-"];
        patiently(Path::new("br0.mgmt"), || {
            let mut command = command("ovs-ofctl", self.directory.path(), &arguments);
            let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            let written = child.stdin.take().unwrap().write_all(flows.as_bytes());
            let output = child.wait_with_output().unwrap();
            let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
            match output.status.success() {
                true => written.map(|()| Ok(())).map_err(|error| error.to_string()),
                // On a busy machine the connection may break before the first message.
                false if complaint.contains("connecting to") => Err(complaint),
                false => Ok(Err(complaint)),
            }
        })
    }

    fn request(&mut self, request: MultipartRequest) -> Vec<MultipartReply> {
        self.openflow.write_all(&Message::MultipartRequest(request).encode(1)).unwrap();
        let mut replies = Vec::new();
        loop {
            if let (_, Message::MultipartReply { reply, more }) = self.receive() {
                replies.push(reply);
                if !more {
                    return replies;
                }
            }
        }
    }

    pub(super) fn flows(&mut self) -> Vec<FlowStats> {
        let replies = self.request(MultipartRequest::Flow(FlowStatsRequest::default()));
        let flows = replies.into_iter().filter_map(|reply| match reply {
            MultipartReply::Flow(flows) => Some(flows),
            _ => None,
        });
        flows.flatten().collect()
    }

    pub(super) fn tables(&mut self) -> Vec<TableStats> {
        let replies = self.request(MultipartRequest::Table);
        let tables = replies.into_iter().filter_map(|reply| match reply {
            MultipartReply::Table(tables) => Some(tables),
            _ => None,
        });
        tables.flatten().collect()
    }

    /// Calls a method of `ovs-appctl`.
    pub(super) fn ask(&mut self, method: &str, params: &[&str]) -> String {
        let request = serde_json::json!({ "id": 0, "method": method, "params": params });
        self.control.write_all(request.to_string().as_bytes()).unwrap();
        let mut bytes = Vec::new();
        let mut piece = [0; 4096];
        let reply: serde_json::Value = loop {
            let count = self.control.read(&mut piece).unwrap();
            assert_ne!(count, 0, "ovs-vswitchd has ended");
            bytes.extend(&piece[..count]);
            if let Ok(reply) = serde_json::from_slice(&bytes) {
                break reply;
            }
        };
        reply["result"].as_str().unwrap_or_else(|| panic!("{request}: {reply}")).to_owned()
    }

    /// A frame of at least 14 bytes comes in through a port.
    pub(super) fn receive_frame(&mut self, ofport: u32, frame: &[u8]) {
        self.ask("netdev-dummy/receive", &[&format!("p{ofport}"), &hex(frame)]);
    }

    /// Sends a frame of at least 14 bytes into a port and gives what comes out, by port, and what a
    /// controller gets.
    pub(super) fn send(&mut self, ofport: u32, frame: &[u8]) -> (Vec<Sent>, Vec<PacketIn>) {
        self.packet_ins.clear();
        self.receive_frame(ofport, frame);
        // The frame waits in its port; each round of the main loop takes frames from ports before it
        // answers barriers, so by then it has gone through the tables.
        self.flow_mods(&[]);
        let by_port = (1..).zip(&mut self.captured);
        let frames =
            by_port.flat_map(|(port, sent)| sent.take().into_iter().map(move |f| (port, f)));
        (frames.collect(), std::mem::take(&mut self.packet_ins))
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The database and the switch.
fn start_daemons(directory: &Path) -> Vec<Child> {
    let path = |name: &str| show(directory.join(name));
    let create = ["create", &path("conf.db"), SCHEMA];
    assert!(command("ovsdb-tool", directory, &create).status().unwrap().success());
    let arguments = [
        &path("conf.db"),
        &format!("--remote=punix:{}", path("db.sock")),
        &format!("--unixctl={}", path("db.ctl")),
    ];
    let database = command("ovsdb-server", directory, &arguments.map(String::as_str)).spawn();
    connect(&directory.join("db.sock"));
    vsctl(directory, "--no-wait init");
    let arguments = [
        &format!("unix:{}", path("db.sock")),
        "--enable-dummy=override",
        "--disable-system",
        &format!("--unixctl={}", path("switch.ctl")),
    ];
    let switch = command("ovs-vswitchd", directory, &arguments).spawn();
    vec![database.unwrap(), switch.unwrap()]
}

/// One bridge with ports 1 to [`PORTS`].
fn configure(directory: &Path, caching: Caching) {
    let cache = match caching {
        Caching::Off => "other_config:flow-limit=0",
        Caching::On => "other_config:max-idle=3600000",
    };
    vsctl(directory, &format!("set Open_vSwitch . other_config:vlan-limit=2 {cache}"));
    vsctl(
        directory,
        "add-br br0 -- set bridge br0 datapath_type=dummy fail-mode=secure protocols=OpenFlow13",
    );
    // Prefix tracking as it is by default, and for IPv6, so that no decision is narrower than need
    // be.
    vsctl(
        directory,
        "set bridge br0 flow_tables:0=@first -- \
         --id=@first create Flow_Table prefixes=nw_dst,nw_src,ipv6_dst",
    );
    for ofport in 1..=PORTS {
        let capture = show(directory.join(format!("p{ofport}.pcap")));
        vsctl(
            directory,
            &format!(
                "add-port br0 p{ofport} -- set interface p{ofport} type=dummy \
                 ofport_request={ofport} options:tx_pcap={capture}"
            ),
        );
    }
}

fn vsctl(directory: &Path, words: &str) {
    let database = format!("--db=unix:{}", show(directory.join("db.sock")));
    let arguments: Vec<&str> = [database.as_str()].into_iter().chain(words.split(' ')).collect();
    let arguments: Vec<&str> = arguments.into_iter().filter(|word| !word.is_empty()).collect();
    assert!(command("ovs-vsctl", directory, &arguments).status().unwrap().success(), "{words}");
}
