//! A header copy to a [`FlowKey`].

use crate::ipv6::Extensions;
use crate::key::{FRAG_ANY, FRAG_LATER, VLAN_PRESENT};
use crate::nd::{self, Found, Neighbour};
use crate::wire::{
    Arp, ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_MIN, ETHERTYPE_RARP, Ethernet,
    Icmp, Ipv4, Ipv6, LlcSnap, PROTO_ICMP, PROTO_ICMPV6, PROTO_SCTP, PROTO_TCP, PROTO_UDP, Sctp,
    Tcp, Udp, VlanTag, is_vlan_tpid, read,
};
use crate::{FlowKey, MacAddr, PortIndex};

/// `eth_type` of an 802.3 frame without an EtherType (OpenFlow 1.3.5, 7.2.3.8).
pub const ETH_TYPE_NONE: u16 = 0x05ff;

/// Where the headers start, in bytes from the start of the frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// IPv4, IPv6 or ARP header that passed its length checks; 0 = none.
    pub l3_offset: u16,
    /// TCP, UDP, SCTP, ICMP or ICMPv6 header, readable as a whole (options aside); 0 = none.
    pub l4_offset: u16,
    /// VLAN tags that were read: 0, 1 or 2. Further ones count as payload.
    pub vlan_tags: u8,
}

/// What [`parse`] found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parsed {
    /// The fields.
    pub key: FlowKey,
    /// The offsets.
    pub layout: Layout,
}

/// Reads the fields of a frame of `frame_len` bytes of which `header` is the start.
///
/// Never fails. What cannot be read, because the frame ends too early, a length lies, or the field
/// lies beyond the header copy, stays zero. Bytes beyond the length in the IP header are padding
/// and are not looked at.
///
/// The rules are those of Open vSwitch's flow extraction (`tests/ovs.rs` compares), but for these:
/// what lies beyond the header copy is not read, and no more than
/// [`MAX_IPV6_EXTENSIONS`](crate::limits::MAX_IPV6_EXTENSIONS) extension headers are; an IPv6
/// packet whose extension headers cannot be walked to the end keeps its traffic class, hop limit
/// and flow label (its `ip_proto` is zero), so that they can be edited.
#[inline]
pub fn parse(header: &[u8], frame_len: u32, in_port: PortIndex) -> Parsed {
    let mut parsed = Parsed::default();
    parse_into(header, frame_len, in_port, &mut parsed.key, &mut parsed.layout);
    parsed
}

/// As [`parse`], but overwrites a key and a layout where they are.
#[inline]
pub fn parse_into(
    header: &[u8],
    frame_len: u32,
    in_port: PortIndex,
    key: &mut FlowKey,
    layout: &mut Layout,
) {
    *key = FlowKey { in_port: u32::from(in_port.0), ..FlowKey::ZERO };
    *layout = Layout::default();
    let frame = Frame { len: frame_len as usize, bytes: cut(header, frame_len as usize) };
    let mut reader = Reader { key, layout };
    if let Some(offset) = reader.read_ethernet(frame.bytes) {
        match reader.key.eth_type {
            ETHERTYPE_IPV4 => reader.read_ipv4(frame, offset),
            ETHERTYPE_IPV6 => reader.read_ipv6(frame, offset),
            ETHERTYPE_ARP | ETHERTYPE_RARP => reader.read_arp(frame.bytes, offset),
            _ => {}
        }
    }
}

/// Where the fields go.
struct Reader<'a> {
    key: &'a mut FlowKey,
    layout: &'a mut Layout,
}

/// A frame, as far as it is readable.
#[derive(Clone, Copy)]
struct Frame<'a> {
    /// True length.
    len: usize,
    bytes: &'a [u8],
}

impl Reader<'_> {
    /// Reads addresses, tags and the EtherType; returns where layer 3 starts.
    #[inline]
    fn read_ethernet(&mut self, bytes: &[u8]) -> Option<usize> {
        let ethernet = read::<Ethernet>(bytes, 0)?;
        self.key.eth_dst = ethernet.dst;
        self.key.eth_src = ethernet.src;
        let mut offset = size_of::<Ethernet>();
        let mut ethertype = ethernet.ethertype.get();
        if is_vlan_tpid(ethertype) {
            (ethertype, offset) = self.read_tags(bytes, ethertype, offset);
        }
        if ethertype < ETHERTYPE_MIN {
            (ethertype, offset) = read_llc_snap(bytes, offset);
        }
        self.key.eth_type = ethertype;
        Some(offset)
    }

    /// Reads one or two tags. A TPID that no whole tag follows is left as the EtherType.
    fn read_tags(&mut self, bytes: &[u8], tpid: u16, offset: usize) -> (u16, usize) {
        let Some(outer) = read::<VlanTag>(bytes, offset) else { return (tpid, offset) };
        self.key.vlan_tpid = tpid;
        self.key.vlan_tci = outer.tci.get() | VLAN_PRESENT;
        self.layout.vlan_tags = 1;
        let (tpid, offset) = (outer.ethertype.get(), offset + size_of::<VlanTag>());
        if !is_vlan_tpid(tpid) {
            return (tpid, offset);
        }
        let Some(inner) = read::<VlanTag>(bytes, offset) else { return (tpid, offset) };
        self.key.inner_vlan_tpid = tpid;
        self.key.inner_vlan_tci = inner.tci.get() | VLAN_PRESENT;
        self.layout.vlan_tags = 2;
        (inner.ethertype.get(), offset + size_of::<VlanTag>())
    }

    #[inline]
    fn read_ipv4(&mut self, frame: Frame<'_>, offset: usize) {
        let Some(ip) = read::<Ipv4>(frame.bytes, offset) else { return };
        let header_len = ip.header_len();
        let total_len = usize::from(ip.total_len.get());
        let end = offset + total_len;
        if header_len < size_of::<Ipv4>() || header_len > total_len || end > frame.len {
            return;
        }
        let fragment = ip.fragment.get();
        let is_later = fragment & Ipv4::FRAGMENT_OFFSET != 0;
        let is_fragment = is_later | (fragment & Ipv4::MORE_FRAGMENTS != 0);
        self.key.ip_frag = (u8::from(is_fragment) * FRAG_ANY) | (u8::from(is_later) * FRAG_LATER);
        self.key.ip_proto = ip.protocol;
        self.key.ip_tos = ip.tos;
        self.key.ip_ttl = ip.ttl;
        set_ipv4(&mut self.key.ip_src, ip.src);
        set_ipv4(&mut self.key.ip_dst, ip.dst);
        self.layout.l3_offset = offset as u16;
        if !is_later {
            self.read_layer4(frame.bytes, offset + header_len, end, PROTO_ICMP);
        }
    }

    #[inline]
    fn read_ipv6(&mut self, frame: Frame<'_>, offset: usize) {
        let Some(ip) = read::<Ipv6>(frame.bytes, offset) else { return };
        let payload = offset + size_of::<Ipv6>();
        let end = payload + usize::from(ip.payload_len.get());
        if end > frame.len {
            return;
        }
        self.key.ip_tos = ip.traffic_class();
        self.key.ip_ttl = ip.hop_limit;
        self.key.ipv6_label = ip.version_class_label.get() & Ipv6::LABEL;
        self.key.ip_src = ip.src;
        self.key.ip_dst = ip.dst;
        self.layout.l3_offset = offset as u16;
        let extensions = Extensions::walk(cut(frame.bytes, end), payload, ip.next_header);
        self.key.ip_proto = extensions.protocol;
        self.key.ip_frag = extensions.ip_frag;
        if let Some(offset) = extensions.upper_offset {
            self.read_layer4(frame.bytes, offset, end, PROTO_ICMPV6);
        }
    }

    /// Reads the ports (or ICMP type and code, for this IP version's `icmp`) of a packet that
    /// ends at `end`.
    #[inline]
    fn read_layer4(&mut self, bytes: &[u8], offset: usize, end: usize, icmp: u8) {
        let bytes = cut(bytes, end);
        let (src, dst) = match self.key.ip_proto {
            PROTO_TCP => {
                let Some(tcp) = read::<Tcp>(bytes, offset) else { return };
                let header_len = tcp.header_len();
                if header_len < size_of::<Tcp>() || offset + header_len > end {
                    return;
                }
                self.key.tcp_flags = tcp.offset_flags.get() & Tcp::FLAGS;
                (tcp.src.get(), tcp.dst.get())
            }
            PROTO_UDP => match read::<Udp>(bytes, offset) {
                Some(udp) => (udp.src.get(), udp.dst.get()),
                None => return,
            },
            PROTO_SCTP => match read::<Sctp>(bytes, offset) {
                Some(&Sctp { ports: [a, b, c, d], .. }) => {
                    (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
                }
                None => return,
            },
            proto if proto == icmp => {
                let Some(icmp) = read::<Icmp>(bytes, offset) else { return };
                if proto == PROTO_ICMPV6
                    && matches!(icmp.kind, nd::SOLICITATION | nd::ADVERTISEMENT)
                    && icmp.code == 0
                {
                    self.read_nd(bytes.get(offset..).unwrap_or_default());
                }
                (u16::from(icmp.kind), u16::from(icmp.code))
            }
            _ => return,
        };
        self.key.l4_src = src;
        self.key.l4_dst = dst;
        self.layout.l4_offset = offset as u16;
    }

    fn read_nd(&mut self, message: &[u8]) {
        let found = Neighbour::read(message);
        self.key.nd_target = found.target.map_or([0; 16], |target| target.value);
        let address =
            |found: Option<Found<MacAddr>>| found.map(|found| found.value).unwrap_or_default();
        self.key.arp_sha = address(found.source_address);
        self.key.arp_tha = address(found.target_address);
    }

    fn read_arp(&mut self, bytes: &[u8], offset: usize) {
        let Some(arp) = read::<Arp>(bytes, offset) else { return };
        if arp.kind != Arp::ETHERNET_IPV4 {
            return;
        }
        self.key.ip_proto = arp.known_operation();
        set_ipv4(&mut self.key.ip_src, arp.spa);
        set_ipv4(&mut self.key.ip_dst, arp.tpa);
        self.key.arp_sha = arp.sha;
        self.key.arp_tha = arp.tha;
        self.layout.l3_offset = offset as u16;
    }
}

/// Bytes after `end` are padding, whether or not the header copy has them.
#[inline]
fn cut(bytes: &[u8], end: usize) -> &[u8] {
    bytes.get(..end).unwrap_or(bytes)
}

/// The EtherType that SNAP carries and what follows it, or [`ETH_TYPE_NONE`].
fn read_llc_snap(bytes: &[u8], offset: usize) -> (u16, usize) {
    match read::<LlcSnap>(bytes, offset) {
        Some(snap)
            if snap.llc_and_oui == LlcSnap::ETHERNET && snap.ethertype.get() >= ETHERTYPE_MIN =>
        {
            (snap.ethertype.get(), offset + size_of::<LlcSnap>())
        }
        _ => (ETH_TYPE_NONE, offset),
    }
}

#[inline]
pub(crate) fn set_ipv4(field: &mut [u8; 16], address: [u8; 4]) {
    if let Some(first) = field.first_chunk_mut() {
        *first = address;
    }
}
