//! The sending side of one connection: what it wants to hear, and a bounded queue.
//!
//! Three kinds of messages share the queue, in the order in which they came. Replies wait until
//! there is room, and whoever makes them waits with them: only this connection is slower. Packets
//! for the controller are dropped when theirs is used up. Notices (FLOW_REMOVED, PORT_STATUS) have
//! room of their own, which packets cannot take. Whoever tells of an event never waits.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tollgate_openflow::controller::AsyncConfig;

use super::notify::removed_reason;
use super::roles::Role;
use crate::limits::{
    NOTICES_QUEUED_MAX, PACKET_IN_QUEUE_BYTES, PACKET_INS_QUEUED_MAX, REPLY_QUEUE_BYTES,
};
use crate::pipeline::Event;

/// Who is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A controller that the bridge was given: it hears of events unless it asks not to.
    Controller,
    /// A tool on the bridge's own socket: it hears of events once it has asked for some bytes of
    /// packets (SET_CONFIG with a miss_send_len), as with Open vSwitch.
    Service,
}

/// What a connection has chosen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    kind: Kind,
    pub(super) role: Role,
    pub(super) wanted: AsyncConfig,
    /// Bytes of a packet sent for a table miss.
    pub(super) miss_send_len: u16,
    /// Nicira's controller id: only packets sent to it come.
    pub(super) controller_id: u16,
}

/// `OFP_DEFAULT_MISS_SEND_LEN` (OpenFlow 1.3.5, section 7.3.2).
const DEFAULT_MISS_SEND_LEN: u16 = 128;

impl Settings {
    fn new(kind: Kind) -> Self {
        let miss_send_len = match kind {
            Kind::Controller => DEFAULT_MISS_SEND_LEN,
            Kind::Service => 0,
        };
        Self {
            kind,
            role: Role::default(),
            wanted: AsyncConfig::default(),
            miss_send_len,
            controller_id: 0,
        }
    }

    fn include(&self, event: &Event) -> bool {
        if self.kind == Kind::Service && self.miss_send_len == 0 {
            return false;
        }
        let masks = if self.role == Role::Slave { &self.wanted.slave } else { &self.wanted.master };
        let (mask, reason) = match event {
            Event::PacketIn(packet) if packet.controller_id != self.controller_id => return false,
            Event::PacketIn(packet) => (masks.packet_in, packet.reason as u32),
            Event::FlowRemoved(flow) => (masks.flow_removed, removed_reason(flow.reason) as u32),
            Event::PortStatus(status) => (masks.port_status, status.reason as u32),
        };
        mask & 1 << reason != 0
    }
}

/// What is lost when the other end is slow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lost {
    pub(super) packet_ins: u64,
    pub(super) notices: u64,
}

/// What is sent in one go.
#[derive(Debug)]
pub(super) enum Item {
    /// Whole messages.
    Reply(Vec<u8>),
    /// What happened on the bridge; it becomes a message when it leaves.
    Event(Arc<Event>),
}

#[derive(Debug)]
struct State {
    settings: Settings,
    greeted: bool,
    queue: VecDeque<Item>,
    reply_bytes: usize,
    packet_ins: usize,
    packet_in_bytes: usize,
    notices: usize,
    lost: Lost,
    /// Somebody has taken messages and not sent them yet: what follows has to wait.
    sending: bool,
    /// Nothing more is queued, and what is there is the last.
    closed: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Peer {
    state: Mutex<State>,
    /// Something was queued, or the end.
    queued: Notify,
    /// Something was taken out, or the end.
    taken: Notify,
}

impl Peer {
    pub(super) fn new(kind: Kind) -> Self {
        let state = State {
            settings: Settings::new(kind),
            greeted: false,
            queue: VecDeque::new(),
            reply_bytes: 0,
            packet_ins: 0,
            packet_in_bytes: 0,
            notices: 0,
            lost: Lost::default(),
            sending: false,
            closed: false,
        };
        Self { state: Mutex::new(state), queued: Notify::new(), taken: Notify::new() }
    }

    /// Held for moments only: the slow path waits for it.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn settings(&self) -> Settings {
        self.state().settings
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut Settings)) {
        change(&mut self.state().settings);
    }

    /// OpenFlow 1.3 was agreed upon: from now on events are sent.
    pub(super) fn set_greeted(&self) {
        self.state().greeted = true;
    }

    pub(super) fn is_greeted(&self) -> bool {
        self.state().greeted
    }

    pub(super) fn lost(&self) -> Lost {
        self.state().lost
    }

    /// Queues whole messages, whether or not there is room; see [`is_full`](Self::is_full).
    pub(super) fn reply(&self, messages: Vec<u8>) {
        self.reply_later(messages);
        self.queued.notify_one();
    }

    /// Queues whole messages for whoever sends next, which is the caller, with
    /// [`take_now`](Self::take_now).
    pub(super) fn reply_later(&self, messages: Vec<u8>) {
        let mut state = self.state();
        if !state.closed && !messages.is_empty() {
            state.reply_bytes += messages.len();
            state.queue.push_back(Item::Reply(messages));
        }
    }

    /// Whether no more replies should be made for now.
    pub(super) fn is_full(&self) -> bool {
        let state = self.state();
        state.reply_bytes >= REPLY_QUEUE_BYTES && !state.closed
    }

    /// Returns when there is room for replies.
    pub(super) async fn room(&self) {
        loop {
            let taken = self.taken.notified();
            if !self.is_full() {
                return;
            }
            taken.await;
        }
    }

    /// Queues an event if it is wanted and there is room. Never waits.
    pub(super) fn offer(&self, event: &Arc<Event>) {
        let mut state = self.state();
        let wanted = !state.closed && state.greeted && state.settings.include(event);
        if wanted && state.count_in(event) {
            state.queue.push_back(Item::Event(Arc::clone(event)));
            drop(state);
            self.queued.notify_one();
        }
    }

    /// Queues nothing more; what is queued is still sent.
    pub(super) fn close(&self) {
        self.state().closed = true;
        self.queued.notify_one();
        self.taken.notify_one();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state().closed
    }

    /// Waits for messages and takes some, at least `bytes` of them if there are so many; none when
    /// none will come any more. Until [`sent`](Self::sent) nobody else gets any.
    pub(super) async fn take(&self, bytes: usize) -> Vec<Item> {
        loop {
            let queued = self.queued.notified();
            let items = self.take_now(bytes);
            if !items.is_empty() || self.is_over() {
                return items;
            }
            queued.await;
        }
    }

    /// Takes messages as [`take`](Self::take) does if there are any and nobody is sending.
    pub(super) fn take_now(&self, wanted_bytes: usize) -> Vec<Item> {
        let mut items = Vec::new();
        let mut bytes = 0;
        let mut state = self.state();
        while !state.sending
            && bytes < wanted_bytes
            && let Some(item) = state.queue.pop_front()
        {
            bytes += item.bytes();
            state.count_out(&item);
            items.push(item);
        }
        state.sending |= !items.is_empty();
        drop(state);
        if !items.is_empty() {
            self.taken.notify_one();
        }
        items
    }

    /// What was taken is sent, but for `rest`, which is next.
    pub(super) fn sent(&self, rest: Vec<u8>) {
        let mut state = self.state();
        state.sending = false;
        if !rest.is_empty() {
            state.reply_bytes += rest.len();
            state.queue.push_front(Item::Reply(rest));
        }
        let more = state.closed || !state.queue.is_empty();
        drop(state);
        if more {
            self.queued.notify_one();
        }
    }

    /// Whether there is nothing to send and never will be.
    fn is_over(&self) -> bool {
        let state = self.state();
        state.closed && state.queue.is_empty() && !state.sending
    }
}

impl State {
    /// Counts an event in, if there is room for it.
    fn count_in(&mut self, event: &Event) -> bool {
        match event {
            Event::PacketIn(packet) => {
                let bytes = self.packet_in_bytes + packet.data.len();
                if self.packet_ins >= PACKET_INS_QUEUED_MAX || bytes > PACKET_IN_QUEUE_BYTES {
                    self.lost.packet_ins += 1;
                    return false;
                }
                self.packet_ins += 1;
                self.packet_in_bytes = bytes;
            }
            Event::FlowRemoved(_) | Event::PortStatus(_) => {
                if self.notices >= NOTICES_QUEUED_MAX {
                    self.lost.notices += 1;
                    return false;
                }
                self.notices += 1;
            }
        }
        true
    }

    fn count_out(&mut self, item: &Item) {
        match item {
            Item::Reply(messages) => self.reply_bytes -= messages.len(),
            Item::Event(event) => match &**event {
                Event::PacketIn(packet) => {
                    self.packet_ins -= 1;
                    self.packet_in_bytes -= packet.data.len();
                }
                Event::FlowRemoved(_) | Event::PortStatus(_) => self.notices -= 1,
            },
        }
    }
}

impl Item {
    /// About what it takes on the wire.
    fn bytes(&self) -> usize {
        const EVENT_BYTES: usize = 128;
        match self {
            Self::Reply(messages) => messages.len(),
            Self::Event(event) => match &**event {
                Event::PacketIn(packet) => EVENT_BYTES + packet.data.len(),
                Event::FlowRemoved(_) | Event::PortStatus(_) => EVENT_BYTES,
            },
        }
    }
}
