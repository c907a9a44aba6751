//! Finds where one JSON text ends and the next begins in a byte stream.
//!
//! The specification leaves framing to the transport. Whoever parses again at each arrival pays the
//! square of a request's length, so brackets and strings are followed byte by byte and a text
//! is parsed once, when it is complete.

use crate::limits::{MAX_REQUEST_BYTES, MAX_REQUEST_DEPTH, MAX_REQUEST_VALUES};

/// Why bytes were thrown away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FramingError {
    /// Something else than an object or array, a bracket that closes nothing, or a line end in a
    /// string. The rest of the line is skipped.
    #[error("this is no JSON object or array (the rest of the line is skipped)")]
    Syntax,
    /// The connection must be closed.
    #[error("a request may have at most {MAX_REQUEST_BYTES} bytes")]
    TooLong,
    /// The connection must be closed.
    #[error("a request may be nested at most {MAX_REQUEST_DEPTH} deep")]
    TooDeep,
    /// The connection must be closed.
    #[error("a request may have at most {MAX_REQUEST_VALUES} values")]
    TooManyValues,
    /// The connection must be closed.
    #[error("no line end within {MAX_REQUEST_BYTES} bytes after what is no JSON")]
    Noise,
}

impl FramingError {
    /// Whether the stream cannot be followed any further.
    pub fn is_fatal(self) -> bool {
        self != Self::Syntax
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before a text.
    Between,
    /// Inside a text, outside strings.
    Inside,
    /// Inside a string.
    String,
    /// After a backslash in a string.
    Escape,
    /// After an error, up to the line's end.
    Skipping,
    /// After a fatal error: nothing more comes of this stream.
    Dead,
}

/// Cuts a stream into complete JSON objects and arrays.
#[derive(Debug)]
pub struct Framer {
    state: State,
    /// The text so far.
    text: Vec<u8>,
    /// Open brackets, innermost in bit 0: 1 is an object.
    brackets: u64,
    depth: u32,
    values: usize,
    skipped: usize,
}

impl Default for Framer {
    fn default() -> Self {
        Self::new()
    }
}

impl Framer {
    /// At the start of a stream.
    pub fn new() -> Self {
        Self {
            state: State::Between,
            text: Vec::new(),
            brackets: 0,
            depth: 0,
            values: 0,
            skipped: 0,
        }
    }

    /// Whether a text has begun and is not complete.
    pub fn is_partial(&self) -> bool {
        matches!(self.state, State::Inside | State::String | State::Escape)
    }

    /// Takes bytes from the front of `input` until a text is complete (whose bytes are returned),
    /// something is wrong, or `input` is empty (`None`).
    pub fn next(&mut self, input: &mut &[u8]) -> Option<Result<Vec<u8>, FramingError>> {
        while let Some((&byte, rest)) = input.split_first() {
            *input = rest;
            match self.step(byte) {
                Ok(false) => {}
                Ok(true) => {
                    self.reset(State::Between);
                    return Some(Ok(std::mem::take(&mut self.text)));
                }
                Err(error) => {
                    self.reset(match byte {
                        _ if error.is_fatal() => State::Dead,
                        b'\n' => State::Between,
                        _ => State::Skipping,
                    });
                    self.text = Vec::new();
                    return Some(Err(error));
                }
            }
        }
        None
    }

    fn reset(&mut self, state: State) {
        self.state = state;
        self.brackets = 0;
        self.depth = 0;
        self.values = 0;
        self.skipped = 0;
    }

    /// Takes one byte in; true when it completes a text.
    fn step(&mut self, byte: u8) -> Result<bool, FramingError> {
        match self.state {
            State::Between => match byte {
                b' ' | b'\t' | b'\r' | b'\n' => return Ok(false),
                b'{' | b'[' => self.state = State::Inside,
                _ => return Err(FramingError::Syntax),
            },
            State::Skipping => {
                self.skipped += 1;
                if byte == b'\n' {
                    self.reset(State::Between);
                } else if self.skipped > MAX_REQUEST_BYTES {
                    return Err(FramingError::Noise);
                }
                return Ok(false);
            }
            State::Dead => return Ok(false),
            State::Inside | State::String | State::Escape => {}
        }
        if self.text.len() >= MAX_REQUEST_BYTES {
            return Err(FramingError::TooLong);
        }
        self.text.push(byte);
        self.inside(byte)
    }

    fn inside(&mut self, byte: u8) -> Result<bool, FramingError> {
        self.state = match (self.state, byte) {
            // JSON has no raw control characters in strings, so here a quote is missing; the next
            // line may be sound.
            (State::String | State::Escape, b'\n') => return Err(FramingError::Syntax),
            (State::Escape, _) => State::String,
            (State::String, b'\\') => State::Escape,
            (State::String, b'"') => State::Inside,
            (State::String, _) => State::String,
            (_, b'"') => State::String,
            (_, b'{' | b'[') => {
                self.open(byte == b'{')?;
                State::Inside
            }
            (_, b'}' | b']') => {
                self.close(byte == b'}')?;
                return Ok(self.depth == 0);
            }
            (_, b',' | b':') => {
                self.count_value()?;
                State::Inside
            }
            _ => State::Inside,
        };
        Ok(false)
    }

    fn open(&mut self, object: bool) -> Result<(), FramingError> {
        if self.depth >= MAX_REQUEST_DEPTH {
            return Err(FramingError::TooDeep);
        }
        self.depth += 1;
        self.brackets = self.brackets << 1 | u64::from(object);
        self.count_value()
    }

    fn close(&mut self, object: bool) -> Result<(), FramingError> {
        if self.brackets & 1 != u64::from(object) {
            return Err(FramingError::Syntax);
        }
        self.brackets >>= 1;
        self.depth = self.depth.saturating_sub(1);
        Ok(())
    }

    fn count_value(&mut self) -> Result<(), FramingError> {
        self.values += 1;
        if self.values > MAX_REQUEST_VALUES { Err(FramingError::TooManyValues) } else { Ok(()) }
    }
}

const _: () = assert!(MAX_REQUEST_DEPTH <= u64::BITS, "one bit per open bracket");

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Feeds `stream` in pieces of `piece` bytes.
    fn frames(stream: &[u8], piece: usize) -> Vec<Result<String, FramingError>> {
        let mut framer = Framer::new();
        let mut found = Vec::new();
        for mut chunk in stream.chunks(piece.max(1)) {
            while let Some(frame) = framer.next(&mut chunk) {
                found.push(frame.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()));
            }
        }
        found
    }

    fn text(text: &str) -> Result<String, FramingError> {
        Ok(text.to_owned())
    }

    #[test]
    fn concatenated_and_line_delimited_texts_are_told_apart() {
        let stream = br#"{"a":"}{\"\\"}[1,[2]]
            {"b" :
              {}} [] "#;
        let expected =
            [r#"{"a":"}{\"\\"}"#, "[1,[2]]", "{\"b\" :\n              {}}", "[]"].map(text);
        for piece in [1, 2, 7, 1000] {
            assert_eq!(frames(stream, piece), expected);
        }
    }

    #[test]
    fn after_nonsense_the_next_line_is_read() {
        let syntax = Err(FramingError::Syntax);
        assert_eq!(frames(b"hello {}\n{}", 3), [syntax.clone(), text("{}")]);
        assert_eq!(frames(b"{\"a\": ]}\n{}", 3), [syntax.clone(), text("{}")]);
        assert_eq!(frames(b"{\"a: 1}\n{}", 3), [syntax.clone(), text("{}")]);
        assert_eq!(frames(b"]\n\n7\n{}", 3), [syntax.clone(), syntax, text("{}")]);
    }

    #[test]
    fn what_is_too_much_ends_the_stream_and_frees_its_memory() {
        let gigabyte_of_brackets = vec![b'['; 1 << 16];
        let mut framer = Framer::new();
        let mut errors = 0;
        for _ in 0..1 << 14 {
            let mut input = gigabyte_of_brackets.as_slice();
            while let Some(frame) = framer.next(&mut input) {
                assert_eq!(frame, Err(FramingError::TooDeep));
                errors += 1;
            }
            assert_eq!(framer.text.capacity(), 0);
            if errors > 0 && framer.state == State::Dead {
                break;
            }
        }
        assert_eq!(errors, 1);

        let mut long = b"{\"a\":\"".to_vec();
        long.resize(MAX_REQUEST_BYTES * 2, b'x');
        assert_eq!(frames(&long, 4096), [Err(FramingError::TooLong)]);
        let many = format!("[{}]", "0,".repeat(MAX_REQUEST_VALUES));
        assert_eq!(frames(many.as_bytes(), 4096), [Err(FramingError::TooManyValues)]);
        let noise = vec![b'x'; MAX_REQUEST_BYTES * 3];
        assert_eq!(frames(&noise, 4096), [Err(FramingError::Syntax), Err(FramingError::Noise)]);
    }

    fn json() -> impl Strategy<Value = serde_json::Value> {
        use serde_json::Value;
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        let tree = leaf.prop_recursive(5, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..5)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        });
        tree.prop_map(|value| if value.is_object() { value } else { Value::from(vec![value]) })
    }

    proptest! {
        #[test]
        fn any_json_comes_out_as_it_went_in(
            values in prop::collection::vec((json(), any::<bool>(), 0_usize..3), 0..6),
            piece in 1_usize..50,
        ) {
            let mut stream = Vec::new();
            for (value, pretty, newlines) in &values {
                let text = if *pretty {
                    serde_json::to_vec_pretty(value).unwrap()
                } else {
                    serde_json::to_vec(value).unwrap()
                };
                stream.extend(text);
                stream.extend(std::iter::repeat_n(b'\n', *newlines));
            }
            let read: Vec<serde_json::Value> = frames(&stream, piece)
                .into_iter()
                .map(|frame| serde_json::from_str(&frame.unwrap()).unwrap())
                .collect();
            let sent: Vec<serde_json::Value> =
                values.into_iter().map(|(value, ..)| value).collect();
            prop_assert_eq!(read, sent);
        }

        #[test]
        fn no_bytes_upset_it(
            bytes in prop::collection::vec(
                prop_oneof![Just(b'{'), Just(b'['), Just(b'"'), Just(b'\\'), Just(b'\n'), any::<u8>()],
                0..300,
            ),
            piece in 1_usize..50,
        ) {
            for text in frames(&bytes, piece).into_iter().flatten() {
                let whole = text.starts_with(['{', '[']) && text.ends_with(['}', ']']);
                prop_assert!(whole, "{:?}", text);
            }
        }
    }
}
