//! Where bursts come from and where frames go: a guest's rings, or the queues of a network card.

use std::sync::Arc;

use tollgate_frame::{Buffer, Burst, DropReason, FetchStats, Segment, Sink as _};
use tollgate_nic::{RxQueue, TxQueue, Unsent};
use tollgate_vhost::{ActiveVring, AvailPeek, CallFd};

/// What fills bursts.
#[derive(Debug)]
pub(crate) enum Inlet {
    /// The ring that a guest transmits on.
    Vring(Box<ActiveVring>),
    /// A receive queue of a network card.
    Nic(Box<RxQueue>),
}

/// How to see whether there is something, without touching what it would come out of.
#[derive(Debug)]
pub(crate) enum Peek {
    Vring(AvailPeek),
    /// It must be asked: an empty poll is as cheap as a look.
    Nic,
}

impl Peek {
    #[inline]
    pub(crate) fn may_have_work(&self) -> bool {
        match self {
            Self::Vring(peek) => peek.has_changed(),
            Self::Nic => true,
        }
    }
}

impl Inlet {
    pub(crate) fn peek(&self) -> Peek {
        match self {
            Self::Vring(ring) => Peek::Vring(ring.peek()),
            Self::Nic(_) => Peek::Nic,
        }
    }

    /// Brings a peek up to where the ring is.
    #[inline]
    pub(crate) fn renew(&self, peek: &mut Peek) {
        if let (Self::Vring(ring), Peek::Vring(peek)) = (self, peek) {
            peek.set_next_avail(ring.next_avail());
        }
    }

    /// Whether it is worth a look: not if it is quarantined.
    #[inline]
    pub(crate) fn is_sound(&self) -> bool {
        match self {
            Self::Vring(ring) => ring.fault().is_none(),
            Self::Nic(_) => true,
        }
    }

    #[inline]
    pub(crate) fn has_work(&mut self) -> bool {
        match self {
            Self::Vring(ring) => ring.has_work(),
            Self::Nic(queue) => queue.has_work(),
        }
    }

    #[inline]
    pub(crate) fn fetch(
        &mut self,
        burst: &mut Burst,
        max: usize,
        malformed: &mut FetchStats,
    ) -> usize {
        match self {
            Self::Vring(ring) => ring.fetch(burst, max, malformed),
            Self::Nic(queue) => queue.fetch(burst, max, malformed),
        }
    }

    /// Gives the last packets of the burst back, to be fetched again.
    #[inline]
    pub(crate) fn unfetch(&mut self, burst: &Burst, count: usize) {
        match self {
            Self::Vring(ring) => ring.unfetch(count),
            Self::Nic(queue) => queue.unfetch(burst, count),
        }
    }

    /// Gives the buffers of the burst back; whom to interrupt for that.
    #[inline]
    pub(crate) fn complete(&mut self, burst: &Burst) -> Option<&Arc<CallFd>> {
        match self {
            Self::Vring(ring) => {
                let wants_interrupt = ring.complete();
                ring.call_fd().filter(|_| wants_interrupt)
            }
            Self::Nic(queue) => {
                queue.complete(burst);
                None
            }
        }
    }
}

/// What takes frames.
#[derive(Debug)]
pub(crate) enum Outlet {
    /// The ring that a guest receives on.
    Vring(Box<ActiveVring>),
    /// The transmit queue of a network card.
    Nic(Box<TxQueue>),
}

impl Outlet {
    /// Reads ahead for so many frames.
    #[inline]
    pub(crate) fn prefetch(&mut self, frames: usize) {
        match self {
            Self::Vring(ring) => ring.prefetch(frames),
            Self::Nic(_) => {}
        }
    }

    /// Copies a frame.
    #[inline(always)]
    pub(crate) fn deliver(
        &mut self,
        header: &[u8],
        payload: &[Segment<'_>],
    ) -> Result<(), DropReason> {
        match self {
            Self::Vring(ring) => ring.deliver(header, payload),
            Self::Nic(queue) => queue.deliver(header, payload),
        }
    }

    /// Copies a frame, or sends the buffer that it lies in, which only a network card can. `take` has one
    /// only if the payload is not needed again.
    #[inline(always)]
    pub(crate) fn deliver_from(
        &mut self,
        take: impl FnOnce() -> Option<Buffer>,
        header: &[u8],
        payload: &[Segment<'_>],
    ) -> Result<(), DropReason> {
        match self {
            Self::Vring(ring) => ring.deliver(header, payload),
            Self::Nic(queue) => queue.deliver_from(take, header, payload),
        }
    }

    /// Ends a run of frames of one source: of those delivered, how many there was no room for after all.
    #[inline]
    pub(crate) fn end_run(&mut self) -> Unsent {
        match self {
            // A guest's ring says so for each frame.
            Self::Vring(_) => Unsent::default(),
            Self::Nic(queue) => queue.flush(),
        }
    }

    /// Cycles that the receiver owes for its buffers.
    #[inline]
    pub(crate) fn take_receiver_cycles(&mut self) -> u64 {
        match self {
            Self::Vring(ring) => ring.take_receiver_cycles(),
            Self::Nic(_) => 0,
        }
    }

    /// Shows the receiver what was delivered; whom to interrupt for that.
    #[inline]
    pub(crate) fn publish(&mut self) -> Option<&Arc<CallFd>> {
        match self {
            Self::Vring(ring) => {
                let wants_interrupt = ring.publish();
                ring.call_fd().filter(|_| wants_interrupt)
            }
            Self::Nic(_) => None,
        }
    }
}

#[cfg(all(test, feature = "dpdk"))]
mod tests {
    use std::sync::OnceLock;

    use tollgate_nic::{Device, DeviceConfig, Eal, Queues};
    use tollgate_packet::{FlowKey, FlowMask, FlowMatch, PortIndex};
    use tollgate_policy::TenantIndex;

    use super::*;
    use crate::control::DatapathConfig;
    use crate::mail::{Discard, Mail};
    use crate::megaflow::{Megaflow, MegaflowStats, Op};
    use crate::pmd::bench::{add_port, pmd};
    use crate::settings::PortSettings;

    const FROM: u16 = 1;
    const TO: u16 = 2;

    fn open(name: &str) -> (Device, Queues) {
        static EAL: OnceLock<Eal> = OnceLock::new();
        let arguments = ["--no-huge", "-m", "128", "--no-pci", "--no-telemetry", "--no-shconf"];
        let arguments = arguments.into_iter().chain(["--log-level=1", "--lcores=0@0"]);
        let arguments: Vec<String> = arguments.map(str::to_owned).collect();
        let eal = *EAL.get_or_init(|| Eal::init(&arguments).unwrap());
        let devargs = name.to_owned();
        Device::open(eal, &DeviceConfig { devargs, queues: 1, mtu: None, promiscuous: true })
            .unwrap()
    }

    /// Of a frame from one card to another, the mbufs that each has out when the turn is over: its own,
    /// if that has gone along, or one that it was copied to.
    fn out_after(ops: &[Op]) -> (u32, u32) {
        let config =
            DatapathConfig { megaflows_max: 64, exact_entries: 64, ..DatapathConfig::default() };
        let mut pmd = pmd(&config).0;
        pmd.accounts.start();
        let settings = PortSettings { uplink: true, ..PortSettings::default() };
        [FROM, TO].into_iter().for_each(|port| add_port(&mut pmd, port, &settings));
        let (from, mut from_queues) = open("net_ring_a");
        let (to, to_queues) = open("net_ring_b");
        let at_rest = (from.mbufs_in_use(), to.mbufs_in_use());
        // The card gives back what it is sent.
        let tx = from_queues.tx.as_mut().unwrap();
        tx.deliver(&[7; 300], &[]).unwrap();
        tx.flush();
        for (port, queues) in [(FROM, from_queues), (TO, to_queues)] {
            pmd.carry_out(Mail::QueuesStart(PortIndex(port), Box::new(queues)));
        }
        let key = FlowKey { in_port: FROM.into(), ..FlowKey::default() };
        let mask = FlowMask(FlowKey { in_port: u32::MAX, ..FlowKey::default() });
        pmd.cache.install(Arc::new(Megaflow {
            matcher: FlowMatch::new(&key, mask),
            ops: ops.into(),
            meters: Box::default(),
            drop_reason: DropReason::RuleDrop,
            owner: TenantIndex(FROM),
            generation: 1,
            stats: MegaflowStats::default(),
        }));
        pmd.look_around(pmd.accounts.last_tsc());
        assert!(pmd.take_received());
        let out = (from.mbufs_in_use() - at_rest.0, to.mbufs_in_use() - at_rest.1);
        for (port, card) in [(TO, to), (FROM, from)] {
            let stop = Mail::QueuesStop(PortIndex(port), Box::default());
            let Some(Discard::Queues(queues)) = pmd.carry_out(stop) else { panic!("queues") };
            card.close(*queues);
        }
        out
    }

    #[test]
    fn a_buffer_goes_along_only_if_nothing_else_is_made_of_its_packet() {
        let to_card = Op::Output(PortIndex(TO));
        let elsewhere = Op::Output(PortIndex(900));
        assert_eq!(out_after(&[to_card]), (1, 0), "it goes along");
        assert_eq!(out_after(&[to_card, elsewhere]), (0, 1), "a copy, and another");
        assert_eq!(out_after(&[elsewhere, to_card]), (0, 1), "the same");
        assert_eq!(out_after(&[to_card, Op::Punt]), (0, 1), "the controller's is made later");
        assert_eq!(out_after(&[Op::Punt, to_card]), (0, 1), "the same");
    }
}
