//! One connection's conversation, apart from its socket: messages in, answers into its queue.

use std::ops::Range;
use std::sync::Arc;

use tollgate_openflow::message::{ErrorMessage, HEADER_BYTES, Header, Hello};
use tollgate_openflow::{DecodeError, ErrorCode, FlowMod, Message};

use super::Bridge;
use super::bundles::Bundles;
use super::dump::FlowDump;
use super::hub::Membership;
use super::peer::Peer;
use super::stream::{Messages, Next};
use crate::limits::{FLOW_MODS_AT_ONCE, WRITE_BYTES};
use crate::pipeline::FlowError;
use crate::ratelimit::RateLimit;

/// What becomes of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// More is to be read.
    Continue,
    /// The queue is full: go on when there is room.
    Paused,
    /// It ends once everything queued is sent.
    Close,
}

pub(super) struct Session {
    pub(super) bridge: Arc<dyn Bridge>,
    pub(super) membership: Membership,
    /// Flow-mods that wait for more, to be carried out together.
    flow_mods: Vec<Pending>,
    pub(super) bundles: Bundles,
    /// A dump of flows that is under way.
    pub(super) dump: Option<FlowDump>,
    /// Answers that are not in the queue yet.
    answers: Vec<u8>,
    log: Arc<RateLimit>,
}

/// A flow-mod and where it was read from.
struct Pending {
    flow_mod: FlowMod,
    xid: u32,
    range: Range<usize>,
}

impl Session {
    pub(super) fn new(
        bridge: Arc<dyn Bridge>,
        membership: Membership,
        log: Arc<RateLimit>,
    ) -> Self {
        let bundles = Bundles::new(Arc::clone(membership.audience().bundles()));
        Self {
            bridge,
            membership,
            flow_mods: Vec::new(),
            bundles,
            dump: None,
            answers: Vec::new(),
            log,
        }
    }

    /// What the switch says first (OpenFlow 1.3.5, section 6.3.1).
    pub(super) fn greeting() -> Vec<u8> {
        Message::Hello(Hello::OURS).encode(0)
    }

    pub(super) fn peer(&self) -> &Arc<Peer> {
        self.membership.peer()
    }

    /// Answers the whole messages in `bytes`. Returns how far it came. The answers are for the
    /// caller to send.
    pub(super) fn work(&mut self, bytes: &[u8]) -> (usize, Verdict) {
        let mut messages = Messages::new(bytes, 0);
        let verdict = self.work_through(bytes, &mut messages);
        self.flush_flow_mods(bytes);
        self.flush();
        // However little was read: nothing more is, before the answers are.
        let full = verdict == Verdict::Continue && self.peer().is_full();
        (messages.position(), if full { Verdict::Paused } else { verdict })
    }

    fn work_through(&mut self, bytes: &[u8], messages: &mut Messages<'_>) -> Verdict {
        loop {
            while self.dump.is_some() {
                if self.peer().is_full() {
                    return Verdict::Paused;
                }
                self.continue_dump();
            }
            if self.answers.len() >= WRITE_BYTES {
                self.flush();
                if self.peer().is_full() {
                    return Verdict::Paused;
                }
            }
            match messages.next() {
                Next::Message(range) => {
                    if self.handle(bytes, range) == Verdict::Close {
                        return Verdict::Close;
                    }
                }
                Next::Incomplete => return Verdict::Continue,
                Next::Lost(range) => {
                    self.handle(bytes, range);
                    return Verdict::Close;
                }
            }
        }
    }

    /// Answers one whole message.
    fn handle(&mut self, bytes: &[u8], range: Range<usize>) -> Verdict {
        let message = bytes.get(range.clone()).unwrap_or_default();
        let decoded = Message::decode(message);
        if !self.peer().is_greeted() {
            return self.greet(xid(message), decoded);
        }
        match decoded {
            Ok((header, Message::FlowMod(flow_mod))) => {
                self.flow_mods.push(Pending { flow_mod: *flow_mod, xid: header.xid, range });
                if self.flow_mods.len() >= FLOW_MODS_AT_ONCE {
                    self.flush_flow_mods(bytes);
                }
            }
            Ok((header, other)) => {
                self.flush_flow_mods(bytes);
                if let Err(error) = self.respond(header.xid, other, message) {
                    self.refuse(header.xid, error, message);
                }
            }
            Err(error) => {
                self.flush_flow_mods(bytes);
                self.refuse(xid(message), error.into(), message);
            }
        }
        Verdict::Continue
    }

    /// Agrees on the version, or says why not.
    fn greet(&mut self, xid: u32, decoded: Result<(Header, Message), DecodeError>) -> Verdict {
        let reason: &[u8] = match decoded {
            Ok((header, Message::Hello(hello))) if hello.speaks_1_3(&header) => {
                self.peer().set_greeted();
                return Verdict::Continue;
            }
            Ok((_, Message::Hello(_))) => {
                b"only OpenFlow 1.3 is spoken here (ovs-ofctl: -O OpenFlow13)"
            }
            _ => b"the first message must be a HELLO",
        };
        let code = ErrorCode::OFPHFC_INCOMPATIBLE;
        self.answer(xid, &Message::Error(ErrorMessage { code, data: reason.to_vec() }));
        Verdict::Close
    }

    /// Carries out the flow-mods that wait, all under one lock.
    fn flush_flow_mods(&mut self, bytes: &[u8]) {
        if self.flow_mods.is_empty() {
            return;
        }
        let pending = std::mem::take(&mut self.flow_mods);
        let (places, flow_mods): (Vec<_>, Vec<_>) =
            pending.into_iter().map(|p| ((p.xid, p.range), p.flow_mod)).unzip();
        let outcomes = match self.check_may_change() {
            Ok(()) => self.bridge.flow_mods(&flow_mods),
            Err(error) => vec![Err(error); flow_mods.len()],
        };
        for ((xid, range), outcome) in places.into_iter().zip(outcomes) {
            if let Err(error) = outcome {
                self.refuse(xid, error, bytes.get(range).unwrap_or_default());
            }
        }
    }

    /// Answers a message with an error.
    pub(super) fn refuse(&mut self, xid: u32, error: FlowError, message: &[u8]) {
        if let Some(suppressed) = self.log.allow() {
            let bridge = self.bridge.name();
            tracing::info!(bridge, xid, %error, suppressed, "refused an OpenFlow message");
        }
        self.answer(xid, &Message::error(error.code, message));
    }

    pub(super) fn answer(&mut self, xid: u32, message: &Message) {
        self.answers.extend_from_slice(&message.encode(xid));
    }

    /// Queues the answers made so far.
    fn flush(&mut self) {
        let answers = std::mem::take(&mut self.answers);
        self.peer().reply_later(answers);
    }
}

/// The transaction id in a message's header.
pub(super) fn xid(message: &[u8]) -> u32 {
    match message.first_chunk::<HEADER_BYTES>() {
        // Also of a header whose length cannot be.
        Some([_, _, _, _, xid @ ..]) => u32::from_be_bytes(*xid),
        None => 0,
    }
}
