//! Bounds-checked reading and writing of big-endian structures.

use std::time::Duration;

use crate::error::{DecodeError, ErrorCode};

/// A cursor over received bytes. Running out of bytes is the error given to [`Reader::new`]:
/// OpenFlow has a different "bad length" for messages, actions, instructions and matches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    too_short: ErrorCode,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8], too_short: ErrorCode) -> Reader<'a> {
        Reader { bytes, too_short }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    fn short(&self) -> DecodeError {
        DecodeError::new(self.too_short, "a length reaches past the end of its container")
    }

    /// The next `count` bytes.
    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.bytes.split_at_checked(count).ok_or(self.short())?;
        self.bytes = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (taken, rest) = self.bytes.split_first_chunk::<N>().ok_or(self.short())?;
        self.bytes = rest;
        Ok(*taken)
    }

    /// A reader over the next `count` bytes that reports `too_short`.
    pub(crate) fn part(
        &mut self,
        count: usize,
        too_short: ErrorCode,
    ) -> Result<Reader<'a>, DecodeError> {
        Ok(Reader::new(self.bytes(count)?, too_short))
    }

    /// The same bytes, reporting another error when they run out.
    pub(crate) fn reporting(self, too_short: ErrorCode) -> Reader<'a> {
        Reader { too_short, ..self }
    }

    /// All that is left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.bytes)
    }

    pub(crate) fn skip(&mut self, count: usize) -> Result<(), DecodeError> {
        self.bytes(count).map(|_| ())
    }

    pub(crate) fn u8(&mut self) -> Result<u8, DecodeError> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(u64::from_be_bytes)
    }

    /// An unsigned number of `count <= 16` bytes.
    pub(crate) fn uint(&mut self, count: usize) -> Result<u128, DecodeError> {
        Ok(self.bytes(count)?.iter().fold(0, |value, byte| value << 8 | u128::from(*byte)))
    }

    /// A NUL-padded string in a field of `count` bytes.
    pub(crate) fn string(&mut self, count: usize) -> Result<String, DecodeError> {
        let bytes = self.bytes(count)?;
        let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(fitting(&String::from_utf8_lossy(text), count).to_owned())
    }

    /// The next type-length-value element, `length` counting the 4 bytes of type and length, and
    /// the padding to 8 bytes that follows it when that is not counted.
    pub(crate) fn element(&mut self, pad: Pad) -> Result<(u16, Reader<'a>), DecodeError> {
        let kind = self.u16()?;
        let length = usize::from(self.u16()?);
        let body_len = length.checked_sub(4).ok_or(self.short())?;
        let body = self.part(body_len, self.too_short)?;
        if pad == Pad::Uncounted {
            self.skip(padding(length))?;
        }
        Ok((kind, body))
    }
}

/// Bytes that are missing from `length` to the next multiple of 8.
pub(crate) const fn padding(length: usize) -> usize {
    length.wrapping_neg() % 8
}

/// A message under construction.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    pub(crate) bytes: Vec<u8>,
}

impl Writer {
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(crate) fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.put(&value.to_be_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.put(&value.to_be_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.put(&value.to_be_bytes());
    }

    /// The low `count <= 16` bytes of a number.
    pub(crate) fn uint(&mut self, value: u128, count: usize) {
        let bytes = value.to_be_bytes();
        self.put(bytes.get(bytes.len().saturating_sub(count)..).unwrap_or_default());
    }

    pub(crate) fn zeros(&mut self, count: usize) {
        self.bytes.resize(self.bytes.len() + count, 0);
    }

    /// A NUL-padded string field; what does not fit beside the last NUL is cut at a character.
    pub(crate) fn string(&mut self, text: &str, field_len: usize) {
        let kept = fitting(text, field_len);
        self.put(kept.as_bytes());
        self.zeros(field_len - kept.len());
    }

    /// Pads with zeros so that what was written since `start` is a multiple of 8 long.
    pub(crate) fn pad_from(&mut self, start: usize) {
        self.zeros(padding(self.len() - start));
    }

    /// Writes the length of what follows `start` into the 16-bit field at `at`.
    pub(crate) fn set_length(&mut self, at: usize, start: usize) {
        let length = u16::try_from(self.len() - start).unwrap_or(u16::MAX);
        if let Some(field) = self.bytes.get_mut(at..at + 2) {
            field.copy_from_slice(&length.to_be_bytes());
        }
    }

    /// Type and length, the content written by `body`, and padding: inside the counted length or
    /// after it.
    pub(crate) fn element(&mut self, kind: u16, pad: Pad, body: impl FnOnce(&mut Writer)) {
        let start = self.len();
        self.u16(kind);
        self.u16(0);
        body(self);
        if pad == Pad::Counted {
            self.pad_from(start);
        }
        self.set_length(start + 2, start);
        if pad == Pad::Uncounted {
            self.pad_from(start);
        }
    }
}

/// Where an element's padding to 8 bytes stands with respect to its length field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pad {
    None,
    Counted,
    Uncounted,
}

/// Seconds and nanoseconds, 32 bits each; a longer time is cut to the longest that fits.
pub(crate) fn encode_duration(duration: Duration, out: &mut Writer) {
    out.u32(u32::try_from(duration.as_secs()).unwrap_or(u32::MAX));
    out.u32(duration.subsec_nanos());
}

/// The same; nanoseconds that make a whole second are cut, so that every time read can be sent.
pub(crate) fn decode_duration(input: &mut Reader<'_>) -> Result<Duration, DecodeError> {
    const NANOSECONDS_MAX: u32 = 999_999_999;
    let seconds = input.u32()?;
    let nanoseconds = input.u32()?.min(NANOSECONDS_MAX);
    Ok(Duration::new(seconds.into(), nanoseconds))
}

/// What of a text fits into a field of `field_len` bytes, the last of which is a zero.
fn fitting(text: &str, field_len: usize) -> &str {
    let mut end = text.len().min(field_len.saturating_sub(1));
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}
