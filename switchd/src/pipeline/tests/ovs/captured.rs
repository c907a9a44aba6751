//! Frames that a dummy port of Open vSwitch has sent, from the capture file that it writes.

use std::fs::File;
use std::io::Read;
use std::path::Path;

const FILE_HEADER_BYTES: usize = 24;
const RECORD_HEADER_BYTES: usize = 16;

/// A capture file that grows.
#[derive(Debug)]
pub(super) struct Captured {
    file: File,
    /// Read but not taken yet.
    bytes: Vec<u8>,
}

impl Captured {
    /// `path` exists already.
    pub(super) fn open(path: &Path) -> Self {
        let mut captured = Self { file: File::open(path).unwrap(), bytes: Vec::new() };
        captured.read();
        captured.bytes.drain(..FILE_HEADER_BYTES);
        captured
    }

    fn read(&mut self) {
        self.file.read_to_end(&mut self.bytes).unwrap();
    }

    /// The frames sent since the last call.
    pub(super) fn take(&mut self) -> Vec<Vec<u8>> {
        self.read();
        let mut frames = Vec::new();
        let mut rest = self.bytes.as_slice();
        while let Some((header, after)) = rest.split_at_checked(RECORD_HEADER_BYTES) {
            // libpcap's record: seconds, microseconds, captured length, original length.
            let len = u32::from_ne_bytes(*header[8..].first_chunk().unwrap()) as usize;
            let (frame, after) = after.split_at(len);
            frames.push(frame.to_vec());
            rest = after;
        }
        assert!(rest.is_empty(), "Open vSwitch writes whole records");
        self.bytes.clear();
        frames
    }
}
