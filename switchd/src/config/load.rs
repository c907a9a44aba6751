//! From a file to a checked [`Config`], with errors that name the key, its line and what would be
//! right.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::locate::{KeyPath, line_of, line_of_path, path_at};
use super::{Config, check};
use crate::limits::MAX_CONFIG_BYTES;

/// The configuration file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Something in the file is wrong.
    #[error("{}", lines(path, problems))]
    Content {
        /// The file.
        path: PathBuf,
        /// Everything that was found to be wrong, in the order of the checks.
        problems: Vec<Problem>,
    },
}

/// One thing that is wrong in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The line (from 1), when it is known.
    pub line: Option<usize>,
    /// The key, as `section.key` or `list[index].key`; empty when the text is no TOML.
    pub key: String,
    /// What is wrong and what would be right.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        if !self.key.is_empty() {
            write!(f, "`{}`: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

fn lines(path: &Path, problems: &[Problem]) -> String {
    let lines: Vec<String> =
        problems.iter().map(|problem| format!("{}: {problem}", path.display())).collect();
    lines.join("\n")
}

/// Reads and checks the file at `path`.
///
/// # Errors
/// When it cannot be read, is no TOML, or has a key or value that is refused.
pub fn load(path: &Path) -> Result<Config, ConfigError> {
    let read_error = |source| ConfigError::Read { path: path.to_owned(), source };
    let mut text = String::new();
    let file = File::open(path).map_err(read_error)?;
    file.take(MAX_CONFIG_BYTES + 1).read_to_string(&mut text).map_err(read_error)?;
    if text.len() as u64 > MAX_CONFIG_BYTES {
        let too_large = format!("is larger than {MAX_CONFIG_BYTES} bytes");
        return Err(read_error(std::io::Error::other(too_large)));
    }
    parse(&text).map_err(|problems| ConfigError::Content { path: path.to_owned(), problems })
}

/// Parses and checks a configuration.
///
/// # Errors
/// Everything that is wrong with it; a text that is no TOML or has a wrong type or an unknown key
/// is one problem.
pub fn parse(text: &str) -> Result<Config, Vec<Problem>> {
    let config: Config = toml::from_str(text).map_err(|error| {
        let span = error.span();
        let path = span.as_ref().and_then(|span| path_at(text, span));
        vec![Problem {
            line: span.map(|span| line_of(text, span.start)),
            key: path.map(|path| path.to_string()).unwrap_or_default(),
            message: error.message().to_owned(),
        }]
    })?;
    let problems: Vec<Problem> = check::problems(&config)
        .into_iter()
        .map(|(path, message)| located(text, &path, message))
        .collect();
    if problems.is_empty() { Ok(config) } else { Err(problems) }
}

fn located(text: &str, path: &KeyPath, message: String) -> Problem {
    Problem { line: line_of_path(text, path), key: path.to_string(), message }
}
