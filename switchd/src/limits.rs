//! Bounds on what the management side may be made to hold or wait for, each with its reason.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Highest OpenFlow number of an ordinary port: numbers from 0xff00 up are special in OpenFlow 1.0,
/// whose 16-bit numbers tools still print.
pub const MAX_OFPORT: u32 = 0xfeff;

/// Largest configuration file: ten thousand ports take about a megabyte.
pub const MAX_CONFIG_BYTES: u64 = 4 << 20;

/// Longest bridge or port name: OpenFlow's port name field is 16 bytes with its terminator
/// (OpenFlow 1.3.5, section 7.2.1, OFP_MAX_PORT_NAME_LEN).
pub const MAX_NAME_BYTES: usize = 15;

/// Longest tenant name: a libvirt domain name or a UUID fits.
pub const MAX_TENANT_NAME_BYTES: usize = 63;

/// Longest path of a unix socket: `sun_path` is 108 bytes with its terminator (unix(7)).
pub const MAX_SOCKET_PATH_BYTES: usize = 107;

/// Bridges of one switch: each has a listening socket and its own tables.
pub const MAX_BRIDGES: usize = 64;

/// Largest JSON-RPC request or batch. The largest real ones are a few hundred bytes.
pub const MAX_REQUEST_BYTES: usize = 256 << 10;

/// Deepest nesting of a JSON-RPC request: a batch of requests with nested parameters is 4 deep.
pub const MAX_REQUEST_DEPTH: u32 = 32;

/// Values and object members in one request. A parsed value takes up to some 600 bytes where its
/// text takes 5, so the byte limit alone would let a request cost a hundredfold.
pub const MAX_REQUEST_VALUES: usize = 8192;

/// Requests in one batch.
pub const MAX_BATCH_REQUESTS: usize = 256;

/// Cached decisions in one reply: some 400 bytes each, so that a reply has at most some megabytes.
pub const MAX_LISTED_MEGAFLOWS: usize = 10_000;

/// Seconds for which the stages of packets may be timed: a tenth has hundreds of tasks of a busy core,
/// and tools wait for an answer for at most a minute.
pub const STAGES_SECONDS: RangeInclusive<f64> = 0.1..=30.0;

/// The same where nobody says: thousands of tasks, as long as one waits at a prompt.
pub const STAGES_SECONDS_DEFAULT: f64 = 1.0;

/// JSON-RPC connections at a time; each may hold one request, one reply and one blocking thread.
pub const MAX_RPC_CONNECTIONS: usize = 64;

/// OpenFlow connections to a bridge's own socket at a time.
pub const MAX_OPENFLOW_CONNECTIONS: usize = 32;

/// Controllers of one bridge: a cluster of three with its standby has six.
pub const MAX_CONTROLLERS: usize = 8;

/// Connections at a time to one place where a bridge listens for controllers.
pub const MAX_CONTROLLER_CONNECTIONS: usize = 8;

/// Threads for calls that block. One for each connection to a socket that only the operator can
/// reach, and one for each controller of some bridges, so that none waits for another; when more are
/// busy at once, the rest waits its turn. A few are for the runtime's own use.
pub const MAX_BLOCKING_THREADS: usize = MAX_RPC_CONNECTIONS
    + MAX_BRIDGES * MAX_OPENFLOW_CONNECTIONS
    + MAX_CONTROLLERS * MAX_BRIDGES
    + 16;

/// What is read from an OpenFlow connection at a time: some two thousand flow-mods, which are
/// carried out for one switch of tasks; at least the longest message.
pub const READ_BUFFER_BYTES: usize = 256 << 10;

/// Flow-mods carried out under one hold of the tables' lock: some 200 us, which a miss may wait.
pub const FLOW_MODS_AT_ONCE: usize = 128;

/// Flows encoded at a time in a dump: most take about 100 bytes, some 16 KiB together.
pub const FLOWS_PER_CHUNK: usize = 128;

/// What is written to an OpenFlow connection at a time, and has [`SEND_STALL`] to leave.
pub const WRITE_BYTES: usize = 64 << 10;

/// Replies that wait for an OpenFlow connection's other end to read them; when there are more, no
/// further request is carried out.
pub const REPLY_QUEUE_BYTES: usize = 256 << 10;

/// Packets that wait for one controller to read them, as in Open vSwitch; later ones are dropped.
pub const PACKET_INS_QUEUED_MAX: usize = 100;

/// Bytes of those packets: a hundred of the usual length, a dozen of the longest.
pub const PACKET_IN_QUEUE_BYTES: usize = 1 << 20;

/// FLOW_REMOVED and PORT_STATUS messages that wait for one controller to read them: what the
/// deletion of a large table makes at once. Connections share them, so that at some 300 bytes each
/// they take 20 MB however many do not read.
pub const NOTICES_QUEUED_MAX: usize = 1 << 16;

/// Bundles that one OpenFlow connection may have open: tools have one.
pub const BUNDLES_MAX: usize = 4;

/// Messages in the bundles of one bridge's connections together: three times what a full table
/// takes, at some 140 bytes each.
pub const BUNDLE_BYTES_MAX: usize = 512 << 20;

/// A controller that has sent nothing for so long is asked whether it is there, and has as long to
/// answer (Open vSwitch's default inactivity probe).
pub const CONTROLLER_PROBE: Duration = Duration::from_secs(5);

/// The same for connections to a bridge's own socket (as in Open vSwitch).
pub const SERVICE_PROBE: Duration = Duration::from_secs(60);

/// How long a controller may take to accept a connection.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(8);

/// The first pause before a controller is tried again; each further one is twice as long.
pub const RECONNECT_MIN: Duration = Duration::from_secs(1);

/// The longest pause (Open vSwitch: 8 s).
pub const RECONNECT_MAX: Duration = Duration::from_secs(8);

/// How long a peer may leave a request or message half sent before it is disconnected.
pub const RECEIVE_STALL: Duration = Duration::from_secs(30);

/// How long a peer may leave a reply unread before it is disconnected.
pub const SEND_STALL: Duration = Duration::from_secs(10);

/// How long an orderly end may take, in milliseconds, unless the command line says otherwise: two
/// seconds from the signal to the last thread are promised.
pub const SHUTDOWN_DEADLINE_MS: u64 = 1800;

/// Tenants whose last port is gone and that are remembered because they owe; beyond it the first to
/// go are forgotten. Each holds an account, of which there are a thousand, and no traffic lets
/// anybody remove ports: only operators make them.
pub const DEPARTED_TENANTS_MAX: usize = 64;
