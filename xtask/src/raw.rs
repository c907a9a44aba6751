//! The files that raw figures go to.

use std::fs::{self, File};
use std::path::Path;

use anyhow::Context as _;

/// A CSV file at `path`, replacing one that is there; its directory is made if need be.
pub(crate) fn csv_file(path: &Path) -> anyhow::Result<csv::Writer<File>> {
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        fs::create_dir_all(directory).with_context(|| format!("cannot make {directory:?}"))?;
    }
    csv::Writer::from_path(path).with_context(|| format!("cannot write {path:?}"))
}
