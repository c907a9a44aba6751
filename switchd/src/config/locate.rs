//! From a place in the configuration to its line, and back.

use std::fmt;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// One step into a TOML document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Into a table, by key.
    Key(String),
    /// Into an array, by position.
    Index(usize),
}

impl From<&str> for Step {
    fn from(key: &str) -> Self {
        Self::Key(key.to_owned())
    }
}

impl From<usize> for Step {
    fn from(index: usize) -> Self {
        Self::Index(index)
    }
}

/// A key's full name, written as in the example: `ports[1].mode`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KeyPath(pub(super) Vec<Step>);

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, step) in self.0.iter().enumerate() {
            match step {
                Step::Key(key) if position == 0 => f.write_str(key)?,
                Step::Key(key) => write!(f, ".{key}")?,
                Step::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

/// The line (from 1) that byte `offset` of `text` is on.
pub(super) fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}

/// The line where `path`, or the longest part of it that was written, stands.
pub(super) fn line_of_path(text: &str, path: &KeyPath) -> Option<usize> {
    let document = DeTable::parse(text).ok()?;
    let mut table = Some(document.get_ref());
    let mut array = None;
    let mut found = None;
    for step in &path.0 {
        let value: &Spanned<DeValue<'_>> = match step {
            Step::Key(key) => {
                let Some((key, value)) = table.and_then(|table| table.get_key_value(key.as_str()))
                else {
                    break;
                };
                found = Some(key.span().start);
                value
            }
            Step::Index(index) => {
                let Some(value) = array.and_then(|array: &toml::de::DeArray<'_>| array.get(*index))
                else {
                    break;
                };
                found = Some(value.span().start);
                value
            }
        };
        table = value.get_ref().as_table();
        array = value.get_ref().as_array();
    }
    found.map(|offset| line_of(text, offset))
}

/// The key whose name or value the parser complained about.
pub(super) fn path_at(text: &str, span: &Range<usize>) -> Option<KeyPath> {
    let document = DeTable::parse(text).ok()?;
    let mut path = Vec::new();
    in_table(document.get_ref(), span, &mut path).then_some(KeyPath(path))
}

fn in_table(table: &DeTable<'_>, span: &Range<usize>, path: &mut Vec<Step>) -> bool {
    for (key, value) in table {
        path.push(Step::Key(key.get_ref().to_string()));
        if covers(&key.span(), span) || in_value(value, span, path) {
            return true;
        }
        path.pop();
    }
    false
}

fn in_value(value: &Spanned<DeValue<'_>>, span: &Range<usize>, path: &mut Vec<Step>) -> bool {
    // A table's own span is its header only, so its members are looked at whatever it covers.
    let inside = match value.get_ref() {
        DeValue::Table(table) => in_table(table, span, path),
        DeValue::Array(array) => array.iter().enumerate().any(|(index, value)| {
            path.push(Step::Index(index));
            let inside = in_value(value, span, path);
            if !inside {
                path.pop();
            }
            inside
        }),
        _ => false,
    };
    inside || covers(&value.span(), span)
}

fn covers(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}
