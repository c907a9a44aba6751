//! Bounds on what one frame may cost to read.

/// Bytes of a frame that are copied out of the guest and may decide something. Ethernet with two
/// tags (22) + IPv6 (40) + several extension headers + TCP with options fit; a header beyond it
/// counts as truncated and is never re-read from the guest.
pub const HEADER_COPY_BYTES: usize = 192;

/// Room in front of the header copy for what is pushed: two VLAN tags now, an outer
/// Ethernet/IPv6/UDP/VXLAN header (70 bytes) later, rounded to a cache line.
pub const HEADROOM_BYTES: usize = 64 + 64 - (HEADER_COPY_BYTES % 64);

/// Smallest frame that is looked at: an Ethernet header. Shorter ones are dropped on receipt.
pub const MIN_FRAME_BYTES: u32 = 14;

/// Largest frame taken from or given to a guest, without FCS: a 9000-byte MTU with Ethernet and
/// two tags is 9022; 9216 is the customary jumbo limit of switches. (Segmentation offload, which
/// needs 64 KiB, is not offered yet.)
pub const MAX_FRAME_BYTES: u32 = 9216;

/// VLAN tags that are parsed and matched: the customer's and the provider's (802.1ad).
pub const MAX_VLAN_TAGS: usize = 2;

/// IPv6 extension headers walked before the packet counts as one without a layer 4: a real packet
/// has at most a few, a hostile one can fill the copy with them.
pub const MAX_IPV6_EXTENSIONS: usize = 8;

/// Options of a neighbour discovery message that are walked: as many of the shortest (8 bytes) as
/// the header copy can hold, so that the walk never ends before the copy does.
pub const MAX_ND_OPTIONS: usize = HEADER_COPY_BYTES / 8;
