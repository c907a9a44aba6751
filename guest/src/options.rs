//! Ports, pairs and phases as `NAME,key=value,...`, as the command line takes them.

use std::fmt::Display;
use std::net::Ipv4Addr;
use std::str::FromStr;
use std::time::Duration;

use crate::endpoint::SocketMode;
use crate::pair::{Content, Mode, PairConfig};
use crate::port::PortConfig;
use crate::virtio;

/// A text that is no port, pair or phase; says which key and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} '{name}': {reason}")]
pub struct OptionError {
    what: &'static str,
    name: String,
    reason: String,
}

/// A phase as typed: a name, the pairs it runs (all when empty), and its own times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhaseOption {
    /// Its name.
    pub name: String,
    /// The pairs it runs; empty for all.
    pub pairs: Vec<String>,
    /// Measured time, instead of the common one.
    pub duration: Option<Duration>,
    /// Warm-up, instead of the common one.
    pub warmup: Option<Duration>,
}

/// What each kind of option accepts, for `--help`.
pub const PORT_KEYS: &str = "\
Port keys:
  path=SOCKET          the vhost-user socket (required)
  mode=connect|listen  who listens: the switch (default), or we (server=1 is the same)
  ring=N               descriptors per ring (1024)
  queues=N             queue pairs (1)
  mrg= indirect= event_idx= in_order= v1= any_layout=   0 never, 1 always (fails if not
                       offered); default: if offered, but event_idx never
  tx=BYTES             largest frame to send (2048)
  rx=BYTES             frame bytes per receive buffer (2048)
  rx_segments=N        descriptors per receive buffer (1)
  irq=1                sleep until interrupted instead of polling
  huge=1               2 MiB pages
  regions=N            memory regions (1)
  check_used=1         read each used entry of transmit rings under in_order
  mac= ip=             addresses (02:00:00:00:00:NN, 10.0.0.NN by position)
  drain=0              never take received frames (a stalled guest)
  wait=SECONDS         how long to wait for the switch (10)";

/// What a pair accepts.
pub const PAIR_KEYS: &str = "\
Pair keys:
  from=PORT to=PORT    where frames enter and must come out (required)
  mode=stream|rpc|dctcp  one way (default); `to` answers each request; one way with ECN, within
                       a window that marks and losses make smaller
  rate=PPS             frames or requests a second (0: as many as possible)
  on=MS off=MS         sends for so long, then pauses for so long, again and again (always on);
                       a rate is that of the time it is on; pairs begin at different times
  inflight=N           rpc: requests outstanding (1)
  timeout=US           rpc: when an unanswered request is lost (100000); dctcp: after so long
                       without an echo all under way is (10000)
  delay=US             dctcp: from arrival to the sender's hearing of it (100)
  size=BYTES           frame on the ring, without FCS (60: a 64-byte frame on a wire; dctcp 1496)
  burst=N              frames per index write at most (32)
  segments=N           descriptors per frame (1)
  queue=N              queue pair to send on (0)
  flows=N              distinct 5-tuples (1)
  vary=F[+F..]         which of sip dip sport dport tell them apart (sport); one counts up,
                       several get 16 hashed bits each
  order=seq|rand       flows in turn (default) or at random
  content=fixed|fresh  payload the same in each frame (default, stream) or not (default, rpc)
  verify=N             check every Nth frame whole (64 stream, 1 rpc; 0 none)
  smac= dmac= sip= dip= sport= dport= vlan=   header fields (the ports' own)";

/// What a phase accepts.
pub const PHASE_KEYS: &str = "\
Phase keys:
  pairs=A[+B..]        pairs that run (all)
  seconds=S warmup=S   instead of --seconds and --warmup";

/// The pieces of `NAME,key=value,...`.
struct Parsed<'t> {
    what: &'static str,
    name: &'t str,
    keys: Vec<(&'t str, &'t str)>,
}

impl<'t> Parsed<'t> {
    fn new(what: &'static str, text: &'t str) -> Result<Self, OptionError> {
        let mut parts = text.split(',');
        let name = parts.next().unwrap_or_default();
        let mut parsed = Self { what, name, keys: Vec::new() };
        if name.is_empty() || name.contains('=') {
            return Err(parsed.error("must begin with a name: NAME,key=value,..."));
        }
        for part in parts {
            let pair = part
                .split_once('=')
                .ok_or_else(|| parsed.error(format!("'{part}' is not key=value")))?;
            parsed.keys.push(pair);
        }
        Ok(parsed)
    }

    fn error(&self, reason: impl Into<String>) -> OptionError {
        OptionError { what: self.what, name: self.name.to_owned(), reason: reason.into() }
    }

    fn unknown(&self, key: &str) -> OptionError {
        self.error(format!("there is no key '{key}'"))
    }

    fn value<T: FromStr<Err: Display>>(&self, key: &str, text: &str) -> Result<T, OptionError> {
        text.parse().map_err(|error| self.error(format!("{key}={text}: {error}")))
    }

    fn flag(&self, key: &str, text: &str) -> Result<bool, OptionError> {
        match text {
            "0" => Ok(false),
            "1" => Ok(true),
            _ => Err(self.error(format!("{key}={text}: 0 or 1"))),
        }
    }

    fn mac(&self, key: &str, text: &str) -> Result<[u8; 6], OptionError> {
        let bytes: Result<Vec<u8>, _> =
            text.split(':').map(|byte| u8::from_str_radix(byte, 16)).collect();
        bytes
            .ok()
            .and_then(|bytes| bytes.try_into().ok())
            .ok_or_else(|| self.error(format!("{key}={text}: six bytes like 02:00:00:00:00:01")))
    }

    fn duration(&self, key: &str, text: &str, unit_seconds: f64) -> Result<Duration, OptionError> {
        let number: f64 = self.value(key, text)?;
        Duration::try_from_secs_f64(number * unit_seconds)
            .map_err(|error| self.error(format!("{key}={text}: {error}")))
    }
}

/// Reads a port; `position` (from 1) gives its default addresses.
///
/// # Errors
/// An unknown key or a value that is none, by name.
pub fn parse_port(text: &str, position: u8) -> Result<PortConfig, OptionError> {
    let parsed = Parsed::new("port", text)?;
    let mut config = PortConfig::new(parsed.name, "");
    config.mac = [2, 0, 0, 0, 0, position];
    config.ip = [10, 0, 0, position];
    for &(key, value) in &parsed.keys {
        match key {
            "path" => config.path = value.into(),
            "mode" => {
                config.mode = match value {
                    "connect" => SocketMode::Connect,
                    "listen" => SocketMode::Listen,
                    _ => return Err(parsed.error(format!("mode={value}: connect or listen"))),
                }
            }
            "server" if parsed.flag(key, value)? => config.mode = SocketMode::Listen,
            "server" => config.mode = SocketMode::Connect,
            "ring" => config.ring_size = parsed.value(key, value)?,
            "queues" => config.queue_pairs = parsed.value(key, value)?,
            "tx" => config.tx_frame_bytes = parsed.value(key, value)?,
            "rx" => config.rx_buffer_bytes = parsed.value(key, value)?,
            "rx_segments" => config.rx_segments = parsed.value(key, value)?,
            "irq" => config.interrupts = parsed.flag(key, value)?,
            "huge" => config.hugepages = parsed.flag(key, value)?,
            "regions" => config.memory_regions = parsed.value(key, value)?,
            "check_used" => config.check_tx_used = parsed.flag(key, value)?,
            "mac" => config.mac = parsed.mac(key, value)?,
            "ip" => config.ip = parsed.value::<Ipv4Addr>(key, value)?.octets(),
            "drain" => config.drain = parsed.flag(key, value)?,
            "wait" => config.timeout = parsed.duration(key, value, 1.0)?,
            _ => match virtio::selectable(key) {
                Some(bit) => config.features.set(bit, parsed.flag(key, value)?),
                None => return Err(parsed.unknown(key)),
            },
        }
    }
    if config.path.as_os_str().is_empty() {
        return Err(parsed.error("needs path=SOCKET"));
    }
    Ok(config)
}

/// Reads a pair.
///
/// # Errors
/// An unknown key or a value that is none, by name.
pub fn parse_pair(text: &str) -> Result<PairConfig, OptionError> {
    let parsed = Parsed::new("pair", text)?;
    // The mode decides the defaults of other keys, so it is read first.
    let mode = parsed.keys.iter().find(|(key, _)| *key == "mode").map(|(_, value)| *value);
    let mut config = match mode {
        None | Some("stream") => PairConfig::stream(parsed.name, "", ""),
        Some("rpc") => PairConfig::rpc(parsed.name, "", "", 0.0),
        Some("dctcp") => PairConfig::dctcp(parsed.name, "", ""),
        Some(value) => return Err(parsed.error(format!("mode={value}: stream, rpc or dctcp"))),
    };
    for &(key, value) in &parsed.keys {
        match key {
            "mode" => {}
            "from" => value.clone_into(&mut config.from),
            "to" => value.clone_into(&mut config.to),
            "rate" => config.rate_pps = parsed.value(key, value)?,
            "on" => config.on_off.get_or_insert_default().0 = parsed.duration(key, value, 1e-3)?,
            "off" => config.on_off.get_or_insert_default().1 = parsed.duration(key, value, 1e-3)?,
            "size" => config.frame_bytes = parsed.value(key, value)?,
            "burst" => config.burst = parsed.value(key, value)?,
            "segments" => config.segments = parsed.value(key, value)?,
            "queue" => config.queue = parsed.value(key, value)?,
            "flows" => config.flows = parsed.value(key, value)?,
            "vary" => config.vary = parsed.value(key, value)?,
            "verify" => config.verify_every = parsed.value(key, value)?,
            "sport" => config.sport = parsed.value(key, value)?,
            "dport" => config.dport = parsed.value(key, value)?,
            "vlan" => config.vlan = Some(parsed.value(key, value)?),
            "smac" => config.smac = Some(parsed.mac(key, value)?),
            "dmac" => config.dmac = Some(parsed.mac(key, value)?),
            "sip" => config.sip = Some(parsed.value(key, value)?),
            "dip" => config.dip = Some(parsed.value(key, value)?),
            "order" => config.random_order = choice(&parsed, key, value, ["seq", "rand"])?,
            "content" => {
                let fresh = choice(&parsed, key, value, ["fixed", "fresh"])?;
                config.content = if fresh { Content::Fresh } else { Content::Fixed };
            }
            "inflight" | "timeout" | "delay" => set_mode(&parsed, &mut config.mode, key, value)?,
            _ => return Err(parsed.unknown(key)),
        }
    }
    if config.from.is_empty() || config.to.is_empty() {
        return Err(parsed.error("needs from=PORT and to=PORT"));
    }
    config.validate().map_err(|reason| parsed.error(reason))?;
    Ok(config)
}

/// Whether `value` is the second of two words.
fn choice(
    parsed: &Parsed<'_>,
    key: &str,
    value: &str,
    words: [&str; 2],
) -> Result<bool, OptionError> {
    let [first, second] = words;
    match value {
        _ if value == first => Ok(false),
        _ if value == second => Ok(true),
        _ => Err(parsed.error(format!("{key}={value}: {first} or {second}"))),
    }
}

/// Sets what only some modes have.
fn set_mode(
    parsed: &Parsed<'_>,
    mode: &mut Mode,
    key: &str,
    value: &str,
) -> Result<(), OptionError> {
    match (key, mode) {
        ("inflight", Mode::Rpc { inflight, .. }) => *inflight = parsed.value(key, value)?,
        ("timeout", Mode::Rpc { timeout: time, .. } | Mode::Dctcp { timeout: time, .. })
        | ("delay", Mode::Dctcp { delay: time, .. }) => {
            *time = parsed.duration(key, value, 1e-6)?
        }
        ("inflight", _) => return Err(parsed.error("inflight is for mode=rpc")),
        ("delay", _) => return Err(parsed.error("delay is for mode=dctcp")),
        _ => return Err(parsed.error(format!("{key} is for mode=rpc and mode=dctcp"))),
    }
    Ok(())
}

/// Reads a phase.
///
/// # Errors
/// An unknown key or a value that is none, by name.
pub fn parse_phase(text: &str) -> Result<PhaseOption, OptionError> {
    let parsed = Parsed::new("phase", text)?;
    let name = parsed.name.to_owned();
    let mut phase = PhaseOption { name, pairs: Vec::new(), duration: None, warmup: None };
    for &(key, value) in &parsed.keys {
        match key {
            "pairs" => phase.pairs = value.split('+').map(str::to_owned).collect(),
            "seconds" => phase.duration = Some(parsed.duration(key, value, 1.0)?),
            "warmup" => phase.warmup = Some(parsed.duration(key, value, 1.0)?),
            _ => return Err(parsed.unknown(key)),
        }
    }
    Ok(phase)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_with_every_kind_of_value_is_read() {
        let text = "v0,path=/x/y,mode=listen,ring=256,queues=2,event_idx=1,mrg=0,irq=1,\
                    mac=02:00:00:00:01:ff,ip=10.1.2.3,wait=0.5";
        let config = parse_port(text, 7).unwrap();
        assert_eq!(config.name, "v0");
        assert_eq!(config.mode, SocketMode::Listen);
        assert_eq!((config.ring_size, config.queue_pairs, config.interrupts), (256, 2, true));
        assert_ne!(config.features.required & virtio::EVENT_IDX, 0);
        assert_eq!(config.features.wanted & virtio::MRG_RXBUF, 0);
        assert_eq!((config.mac, config.ip), ([2, 0, 0, 0, 1, 0xff], [10, 1, 2, 3]));
        assert_eq!(config.timeout, Duration::from_millis(500));
        assert_eq!(parse_port("v0,path=/x", 7).unwrap().mac, [2, 0, 0, 0, 0, 7]);
    }

    #[test]
    fn a_pair_takes_its_defaults_from_its_mode_wherever_that_stands() {
        let pair = parse_pair("v,from=a,to=b,inflight=4,timeout=250,mode=rpc,rate=1e4").unwrap();
        let timeout = Duration::from_micros(250);
        assert_eq!(pair.mode, Mode::Rpc { inflight: 4, timeout });
        assert_eq!((pair.content, pair.verify_every), (Content::Fresh, 1));
        assert_eq!(parse_pair("v,from=a,to=b").unwrap().content, Content::Fixed);
        let bursts = parse_pair("v,from=a,to=b,on=2,off=0.5").unwrap().on_off;
        assert_eq!(bursts, Some((Duration::from_millis(2), Duration::from_micros(500))));
        let pair = parse_pair("v,from=a,to=b,delay=40,mode=dctcp").unwrap();
        let (delay, timeout) = (Duration::from_micros(40), Duration::from_millis(10));
        assert_eq!((pair.mode, pair.frame_bytes), (Mode::Dctcp { delay, timeout }, 1496));
    }

    #[test]
    fn errors_name_the_key_and_what_would_be_right() {
        let port = |text: &str| parse_port(text, 1).unwrap_err().to_string();
        assert_eq!(port("v0"), "port 'v0': needs path=SOCKET");
        assert_eq!(port("v0,path=/x,rign=4"), "port 'v0': there is no key 'rign'");
        assert_eq!(port("v0,path=/x,mrg=2"), "port 'v0': mrg=2: 0 or 1");
        assert!(port("path=/x").contains("must begin with a name"));
        let pair = |text: &str| parse_pair(text).unwrap_err().to_string();
        assert_eq!(pair("p,from=a,to=b,inflight=2"), "pair 'p': inflight is for mode=rpc");
        assert_eq!(pair("p,from=a,to=b,size=59"), "pair 'p': size=59: 60 to 9216");
        assert_eq!(
            pair("p,from=a,to=b,on=2"),
            "pair 'p': on=2,off=0: both, each 0.001 to 10000 (ms)"
        );
        assert_eq!(pair("p,from=a,to=b,mode=rpc,delay=2"), "pair 'p': delay is for mode=dctcp");
        let many = pair("p,from=a,to=b,mode=dctcp,flows=2");
        assert_eq!(many, "pair 'p': flows=2: mode=dctcp is one flow, whose gaps are losses");
        assert!(pair("p,from=a,to=b,vary=tos").contains("none of sip, dip, sport, dport"));
        assert!(parse_phase("x,second=3").unwrap_err().to_string().contains("no key 'second'"));
    }
}
