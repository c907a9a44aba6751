//! The ports a PMD knows and the rings it polls.

use std::sync::Arc;

use tollgate_classifier::FlowSlot;
use tollgate_nic::{Queues, Unsent};
use tollgate_packet::{MacAddr, PortIndex};
use tollgate_policy::TenantIndex;
use tollgate_vhost::ActiveVring;

use crate::counters::PortCounters;
use crate::limits::{MAX_PORTS, MAX_QUEUE_PAIRS};
use crate::pmd::ends::{Inlet, Outlet};
use crate::settings::PortSettings;

/// One ring that frames come from: the port and which of its queue pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RingRef {
    pub(crate) port: PortIndex,
    pub(crate) pair: u8,
}

impl RingRef {
    /// Its number among all rings that there can be: pair by pair, so that what is kept of ports with
    /// one pair lies close together.
    #[inline]
    pub(crate) fn queue(self) -> u16 {
        u16::from(self.pair) * MAX_PORTS as u16 + self.port.0
    }

    /// The ring of a number.
    #[inline]
    pub(crate) fn of_queue(queue: u16) -> Self {
        let ports = MAX_PORTS as u16;
        Self { port: PortIndex(queue % ports), pair: (queue / ports) as u8 }
    }
}

/// A port with the rings that its guest has started, or the queues of its network card; as the guest
/// calls them. Made and dropped off the PMD.
#[derive(Debug)]
pub(crate) struct PortSlot {
    pub(crate) index: PortIndex,
    pub(crate) tenant: TenantIndex,
    /// The PMD that polls the port and alone touches its rings.
    pub(crate) home: usize,
    pub(crate) counters: Arc<PortCounters>,
    /// What enters here is charged to the tenants that it is for.
    pub(crate) uplink: bool,
    /// The address of the guest behind it, if the operator has said so.
    pub(crate) mac: Option<MacAddr>,
    /// What becomes of every packet that enters here, if that is known to be the same for all.
    pub(crate) decision: Option<FlowSlot>,
    guest_tx: [Option<PolledRing>; MAX_QUEUE_PAIRS],
    guest_rx: [Option<Outlet>; MAX_QUEUE_PAIRS],
    guest_rx_started: RxChoice,
    /// Bit per pair: its receive ring has frames that the guest cannot see yet.
    unpublished_pairs: u8,
}

/// The queue pairs with a started receive ring.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RxChoice {
    pairs: [u8; MAX_QUEUE_PAIRS],
    count: usize,
}

impl RxChoice {
    /// The pair for a flow: all packets of one flow use one ring.
    #[inline]
    pub(crate) fn pick(&self, flow_hash: u64) -> Option<u8> {
        let choice = match self.count {
            0 => return None,
            1 => 0,
            // The high half: the low bits choose the bucket of the exact-match table.
            count => (flow_hash >> 32) as usize % count,
        };
        self.pairs.get(choice).copied()
    }
}

/// A ring that frames come from and when it may be looked at again.
#[derive(Debug)]
pub(crate) struct PolledRing {
    pub(crate) ring: Inlet,
    pub(crate) rest_until_tsc: u64,
}

impl PolledRing {
    #[inline]
    pub(crate) fn has_work(&mut self, now_tsc: u64) -> bool {
        now_tsc >= self.rest_until_tsc && self.ring.has_work()
    }
}

/// Queue pair of a vring, and whether the guest transmits on it (virtio 1.2, 5.1.2: receiveq1 is
/// virtqueue 0, transmitq1 virtqueue 1, and so on).
fn pair_of(vring_index: u16) -> (usize, bool) {
    (usize::from(vring_index / 2), vring_index % 2 == 1)
}

impl PortSlot {
    pub(crate) fn new(
        index: PortIndex,
        tenant: TenantIndex,
        home: usize,
        counters: Arc<PortCounters>,
        settings: &PortSettings,
    ) -> Self {
        Self {
            index,
            tenant,
            home,
            counters,
            uplink: settings.uplink,
            mac: settings.mac,
            decision: None,
            guest_tx: Default::default(),
            guest_rx: Default::default(),
            guest_rx_started: RxChoice::default(),
            unpublished_pairs: 0,
        }
    }

    /// Takes a ring over. It comes back if its index is beyond the port's queues, and so does the
    /// ring whose place it takes.
    pub(crate) fn start(
        &mut self,
        ring: Box<ActiveVring>,
    ) -> Result<Option<RingRef>, Box<ActiveVring>> {
        let (pair, guest_transmits) = pair_of(ring.index());
        if guest_transmits {
            match self.guest_tx.get_mut(pair) {
                Some(place @ None) => {
                    *place = Some(PolledRing { ring: Inlet::Vring(ring), rest_until_tsc: 0 });
                }
                _ => return Err(ring),
            }
            return Ok(Some(RingRef { port: self.index, pair: pair as u8 }));
        }
        match self.guest_rx.get_mut(pair) {
            Some(place @ None) => *place = Some(Outlet::Vring(ring)),
            _ => return Err(ring),
        }
        self.list_started();
        Ok(None)
    }

    /// Gives a ring back; the [`RingRef`] is no longer valid.
    pub(crate) fn stop(&mut self, vring_index: u16) -> (Option<Box<ActiveVring>>, Option<RingRef>) {
        let (pair, guest_transmits) = pair_of(vring_index);
        if guest_transmits {
            let is_ring = |polled: &mut PolledRing| matches!(polled.ring, Inlet::Vring(_));
            let polled = self.guest_tx.get_mut(pair).and_then(|place| place.take_if(is_ring));
            let Some(PolledRing { ring: Inlet::Vring(ring), .. }) = polled else {
                return (None, None);
            };
            return (Some(ring), Some(RingRef { port: self.index, pair: pair as u8 }));
        }
        let is_ring = |outlet: &mut Outlet| matches!(outlet, Outlet::Vring(_));
        let outlet = self.guest_rx.get_mut(pair).and_then(|place| place.take_if(is_ring));
        self.list_started();
        match outlet {
            Some(Outlet::Vring(ring)) => (Some(ring), None),
            _ => (None, None),
        }
    }

    /// Takes a network card's queues over, into places that are free; what finds none stays behind.
    pub(crate) fn start_queues(&mut self, queues: &mut Queues) {
        let free =
            self.guest_tx.iter_mut().zip(&mut queues.rx).filter(|(place, _)| place.is_none());
        for (place, queue) in free {
            *place =
                queue.take().map(|queue| PolledRing { ring: Inlet::Nic(queue), rest_until_tsc: 0 });
        }
        if let [place @ None, ..] = &mut self.guest_rx {
            *place = queues.tx.take().map(Outlet::Nic);
        }
        self.list_started();
    }

    /// Gives a network card's queues back.
    pub(crate) fn stop_queues(&mut self, queues: &mut Queues) {
        for (place, queue) in self.guest_tx.iter_mut().zip(&mut queues.rx) {
            let is_queue = |polled: &mut PolledRing| matches!(polled.ring, Inlet::Nic(_));
            if let Some(PolledRing { ring: Inlet::Nic(polled), .. }) = place.take_if(is_queue) {
                *queue = Some(polled);
            }
        }
        let [first, ..] = &mut self.guest_rx;
        if let Some(Outlet::Nic(queue)) = first.take_if(|outlet| matches!(outlet, Outlet::Nic(_))) {
            queues.tx = Some(queue);
        }
        self.list_started();
    }

    fn list_started(&mut self) {
        let choice = &mut self.guest_rx_started;
        choice.count = 0;
        let started = self.guest_rx.iter().zip(0_u8..).filter(|(ring, _)| ring.is_some());
        for (place, (_, pair)) in choice.pairs.iter_mut().zip(started) {
            *place = pair;
            choice.count += 1;
        }
    }

    #[inline]
    pub(crate) fn guest_tx(&mut self, pair: u8) -> Option<&mut PolledRing> {
        self.guest_tx.get_mut(usize::from(pair)).and_then(Option::as_mut)
    }

    #[inline]
    pub(crate) fn guest_rx(&mut self, pair: u8) -> Option<&mut Outlet> {
        self.guest_rx.get_mut(usize::from(pair)).and_then(Option::as_mut)
    }

    /// The receive rings that there are to choose from.
    #[inline]
    pub(crate) fn rx_choice(&self) -> RxChoice {
        self.guest_rx_started
    }

    /// The receive ring for a flow.
    #[inline]
    pub(crate) fn pick_guest_rx(&self, flow_hash: u64) -> Option<u8> {
        self.guest_rx_started.pick(flow_hash)
    }

    /// Whether all flows use one receive ring, which `pmd` serves.
    #[inline]
    pub(crate) fn takes_any_hash(&self, pmd: usize) -> bool {
        self.home == pmd && self.guest_rx_started.count <= 1
    }

    /// Reads ahead for `frames` deliveries, if it is clear which ring they go to.
    #[inline]
    pub(crate) fn prefetch(&mut self, frames: usize) {
        if self.guest_rx_started.count == 1
            && let Some(pair) = self.pick_guest_rx(0)
            && let Some(ring) = self.guest_rx(pair)
        {
            ring.prefetch(frames);
        }
    }

    /// Ends a run of frames of one source to this port: of those delivered, how many there was no room
    /// for after all.
    #[inline]
    pub(crate) fn end_run(&mut self) -> Unsent {
        // A network card has one transmit queue.
        match &mut self.guest_rx {
            [Some(outlet), ..] => outlet.end_run(),
            _ => Unsent::default(),
        }
    }

    /// Notes that a pair's receive ring must be published; `true` the first time.
    #[inline]
    pub(crate) fn mark_unpublished(&mut self, pair: u8) -> bool {
        let bit = 1 << pair;
        let first = self.unpublished_pairs & bit == 0;
        self.unpublished_pairs |= bit;
        first
    }

    #[inline]
    pub(crate) fn clear_unpublished(&mut self, pair: u8) {
        self.unpublished_pairs &= !(1 << pair);
    }

    pub(crate) fn polled_rings(&self) -> impl Iterator<Item = RingRef> + '_ {
        let started = self.guest_tx.iter().zip(0_u8..).filter(|(ring, _)| ring.is_some());
        started.map(|(_, pair)| RingRef { port: self.index, pair })
    }
}

/// Every port of the switch, by [`PortIndex`].
#[derive(Debug)]
pub(crate) struct PortTable(Box<[Option<Box<PortSlot>>]>);

impl PortTable {
    pub(crate) fn new() -> Self {
        Self((0..MAX_PORTS).map(|_| None).collect())
    }

    pub(crate) fn put(&mut self, slot: Box<PortSlot>) -> Option<Box<PortSlot>> {
        match self.0.get_mut(usize::from(slot.index.0)) {
            Some(place) => place.replace(slot),
            None => Some(slot),
        }
    }

    pub(crate) fn take(&mut self, index: PortIndex) -> Option<Box<PortSlot>> {
        self.0.get_mut(usize::from(index.0)).and_then(Option::take)
    }

    #[inline]
    pub(crate) fn get(&self, index: PortIndex) -> Option<&PortSlot> {
        self.0.get(usize::from(index.0)).and_then(Option::as_deref)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: PortIndex) -> Option<&mut PortSlot> {
        self.0.get_mut(usize::from(index.0)).and_then(Option::as_deref_mut)
    }

    /// The guests' configured addresses, by port.
    pub(crate) fn macs(&self) -> impl Iterator<Item = (MacAddr, TenantIndex)> {
        let ports = self.0.iter().flatten().filter(|port| !port.uplink);
        ports.filter_map(|port| Some((port.mac?, port.tenant)))
    }

    #[inline]
    pub(crate) fn polled(&mut self, at: RingRef) -> Option<&mut PolledRing> {
        self.get_mut(at.port)?.guest_tx(at.pair)
    }
}
