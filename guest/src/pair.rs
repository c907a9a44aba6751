//! Pairs: one direction of traffic each, from one port to another.

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::flows::Vary;
use crate::frame::FrameSpec;
use crate::limits::{BURST_FRAMES, FRAME_BYTES_MAX, INFLIGHT_MAX, ON_OFF_RANGE, TX_SEGMENTS_MAX};

/// What a pair does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Frames go one way.
    Stream,
    /// As [`Self::Stream`], but ECN-capable and within a congestion window: a DCTCP sender.
    Dctcp {
        /// From a frame's arrival to the sender's hearing of it, marked or not.
        delay: Duration,
        /// Without any such echo for so long, all under way is lost.
        timeout: Duration,
    },
    /// The far port answers each request, and at most `inflight` are unanswered.
    Rpc {
        /// Requests outstanding at most.
        inflight: usize,
        /// A request unanswered for so long is lost.
        timeout: Duration,
    },
}

impl Mode {
    /// One request at a time, lost after 100 ms.
    pub const RPC: Self = Self::Rpc { inflight: 1, timeout: Duration::from_millis(100) };

    /// Echoes after 100 us, as within a data centre; the time-out of TCP there, 10 ms.
    pub const DCTCP: Self =
        Self::Dctcp { delay: Duration::from_micros(100), timeout: Duration::from_millis(10) };

    /// Whether nothing is answered.
    pub(crate) fn is_one_way(self) -> bool {
        !matches!(self, Self::Rpc { .. })
    }
}

/// What the payload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// The same in each frame of the pair: costs nothing to send.
    Fixed,
    /// Different in each frame: a payload left over from another frame is noticed.
    Fresh,
}

/// One direction of traffic.
#[derive(Clone, Debug)]
pub struct PairConfig {
    /// Its name in reports.
    pub name: String,
    /// The port where frames enter the switch.
    pub from: String,
    /// The port where they must come out.
    pub to: String,
    /// One way, or requests and replies.
    pub mode: Mode,
    /// Frames (requests) per second; 0 for as many as possible.
    pub rate_pps: f64,
    /// It sends for the first time and pauses for the second, again and again; `None` for ever on.
    pub on_off: Option<(Duration, Duration)>,
    /// Bytes of each frame on the ring, without FCS: 60 makes a 64-byte frame on a wire.
    pub frame_bytes: usize,
    /// Flows.
    pub flows: u64,
    /// What tells them apart.
    pub vary: Vary,
    /// Whether flows are visited at random instead of in turn.
    pub random_order: bool,
    /// Frames per publication of the ring, at most.
    pub burst: usize,
    /// Descriptors per frame.
    pub segments: usize,
    /// Queue pair to send on.
    pub queue: usize,
    /// The payload.
    pub content: Content,
    /// Every how many received frames one is checked whole; 0 for none. Stamps and order are
    /// checked on each.
    pub verify_every: u32,
    /// Ethernet source instead of the sending port's.
    pub smac: Option<[u8; 6]>,
    /// Ethernet destination instead of the receiving port's.
    pub dmac: Option<[u8; 6]>,
    /// IPv4 source instead of the sending port's.
    pub sip: Option<Ipv4Addr>,
    /// IPv4 destination instead of the receiving port's.
    pub dip: Option<Ipv4Addr>,
    /// UDP source port.
    pub sport: u16,
    /// UDP destination port.
    pub dport: u16,
    /// VLAN tag.
    pub vlan: Option<u16>,
}

impl PairConfig {
    /// A stream of 60-byte frames of one flow, flat out; every 64th is checked whole.
    pub fn stream(name: &str, from: &str, to: &str) -> Self {
        Self {
            name: name.to_owned(),
            from: from.to_owned(),
            to: to.to_owned(),
            mode: Mode::Stream,
            rate_pps: 0.0,
            on_off: None,
            frame_bytes: 60,
            flows: 1,
            vary: Vary::SPORT,
            random_order: false,
            burst: BURST_FRAMES,
            segments: 1,
            queue: 0,
            content: Content::Fixed,
            verify_every: 64,
            smac: None,
            dmac: None,
            sip: None,
            dip: None,
            sport: 1024,
            dport: 9,
            vlan: None,
        }
    }

    /// Requests of 60 bytes, one at a time and `rate_pps` of them a second (0: as many as
    /// possible), each with its own payload, all checked whole.
    pub fn rpc(name: &str, from: &str, to: &str, rate_pps: f64) -> Self {
        Self {
            mode: Mode::RPC,
            rate_pps,
            content: Content::Fresh,
            verify_every: 1,
            ..Self::stream(name, from, to)
        }
    }

    /// An ECN-capable stream of 1496-byte frames within a DCTCP sender's window.
    pub fn dctcp(name: &str, from: &str, to: &str) -> Self {
        Self { mode: Mode::DCTCP, frame_bytes: 1496, ..Self::stream(name, from, to) }
    }

    /// Whether all values are in range.
    ///
    /// # Errors
    /// Names the value and what would be right.
    pub(crate) fn validate(&self) -> Result<(), String> {
        let least = FrameSpec::bytes_min(self.vlan.is_some());
        if !(least..=FRAME_BYTES_MAX).contains(&self.frame_bytes) {
            return Err(format!("size={}: {least} to {FRAME_BYTES_MAX}", self.frame_bytes));
        }
        if let Mode::Rpc { inflight, .. } = self.mode
            && !(1..=INFLIGHT_MAX).contains(&inflight)
        {
            return Err(format!("inflight={inflight}: 1 to {INFLIGHT_MAX}"));
        }
        if matches!(self.mode, Mode::Dctcp { .. }) && self.flows != 1 {
            return Err(format!(
                "flows={}: mode=dctcp is one flow, whose gaps are losses",
                self.flows
            ));
        }
        if !(1..=BURST_FRAMES).contains(&self.burst) {
            return Err(format!("burst={}: 1 to {BURST_FRAMES}", self.burst));
        }
        if !(1..=TX_SEGMENTS_MAX).contains(&self.segments) {
            return Err(format!("segments={}: 1 to {TX_SEGMENTS_MAX}", self.segments));
        }
        if !(self.rate_pps.is_finite() && self.rate_pps >= 0.0) {
            return Err(format!("rate={}: 0 or more", self.rate_pps));
        }
        if let Some((on, off)) = self.on_off
            && !(ON_OFF_RANGE.contains(&on) && ON_OFF_RANGE.contains(&off))
        {
            let [on, off] = [on, off].map(|time| time.as_secs_f64() * 1e3);
            return Err(format!("on={on},off={off}: both, each 0.001 to 10000 (ms)"));
        }
        if self.flows == 0 || self.flows > 1 << 32 {
            return Err(format!("flows={}: 1 to 2^32", self.flows));
        }
        if self.vlan.is_some_and(|vid| vid > 0xfff) {
            return Err("vlan: 0 to 4095".to_owned());
        }
        Ok(())
    }
}
