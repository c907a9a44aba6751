//! Reads capture files of the classic format (libpcap's savefile, as tcpdump writes it).

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use anyhow::{Context, bail};

/// LINKTYPE_ETHERNET.
const ETHERNET: u32 = 1;
/// Longest packet that is believed; tcpdump captures at most 262144 bytes of one.
const PACKET_MAX_BYTES: u32 = 262_144;

/// A capture file; its packets in order.
#[derive(Debug)]
pub(super) struct Capture {
    input: BufReader<File>,
    big_endian: bool,
}

impl Capture {
    pub(super) fn open(path: &Path) -> anyhow::Result<Capture> {
        let mut input = BufReader::new(File::open(path)?);
        let mut header = [0; 24];
        input.read_exact(&mut header).context("no capture file: shorter than its header")?;
        let [m0, m1, m2, m3, .., l0, l1, l2, l3] = header;
        // Times in microseconds or nanoseconds, in either order of bytes.
        let big_endian = match [m0, m1, m2, m3] {
            [0xa1, 0xb2, 0xc3, 0xd4] | [0xa1, 0xb2, 0x3c, 0x4d] => true,
            [0xd4, 0xc3, 0xb2, 0xa1] | [0x4d, 0x3c, 0xb2, 0xa1] => false,
            [0x0a, 0x0d, 0x0d, 0x0a] => bail!(
                "a pcapng file; only pcap is read (editcap -F pcap IN OUT, or tcpdump -r IN -w OUT)"
            ),
            _ => bail!("no pcap file"),
        };
        let capture = Capture { input, big_endian };
        match capture.number([l0, l1, l2, l3]) & 0x0fff_ffff {
            ETHERNET => Ok(capture),
            other => bail!("captured on something that is not Ethernet (link type {other})"),
        }
    }

    fn number(&self, bytes: [u8; 4]) -> u32 {
        if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }

    fn read_packet(&mut self) -> anyhow::Result<Option<Vec<u8>>> {
        let mut header = Vec::new();
        self.input.by_ref().take(16).read_to_end(&mut header)?;
        let &[_, _, _, _, _, _, _, _, c0, c1, c2, c3, l0, l1, l2, l3] = header.as_slice() else {
            return match header.is_empty() {
                true => Ok(None),
                false => bail!("the file ends within a packet"),
            };
        };
        let captured = self.number([c0, c1, c2, c3]);
        let length = self.number([l0, l1, l2, l3]);
        if captured > PACKET_MAX_BYTES {
            bail!("{captured} bytes are too many for a packet: the file is damaged");
        }
        let mut packet = vec![0; captured as usize];
        self.input.read_exact(&mut packet).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => anyhow::anyhow!("the file ends within a packet"),
            _ => error.into(),
        })?;
        if captured < length {
            bail!("only {captured} of {length} bytes were captured: capture whole packets (-s 0)");
        }
        Ok(Some(packet))
    }
}

impl Iterator for Capture {
    type Item = anyhow::Result<Vec<u8>>;

    fn next(&mut self) -> Option<anyhow::Result<Vec<u8>>> {
        self.read_packet().transpose()
    }
}
