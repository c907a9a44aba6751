//! Files of flows, read a line at a time and more than once: first to find out whether every line
//! is right, then to send them. A million flows need no more memory than one.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek};

use anyhow::{Context, anyhow, bail};
use tollgate_openflow::limits::FLOW_TEXT_MAX_BYTES;
use tollgate_openflow::text::{PortNames, parse_flow_line};
use tollgate_openflow::{FlowCommand, FlowMod};

use crate::limits::FLOW_FILE_MAX_BYTES;

/// A file of flows, or what came in on standard input.
#[derive(Debug)]
pub(crate) struct FlowFile {
    /// What messages call it.
    pub(crate) name: String,
    file: File,
}

impl FlowFile {
    /// Opens a file, `-` for standard input. What can be read only once is copied first.
    pub(crate) fn open(path: &str) -> anyhow::Result<FlowFile> {
        let name = if path == "-" { "standard input" } else { path }.to_owned();
        let file = open(path).with_context(|| format!("cannot read {name}"))?;
        Ok(FlowFile { name, file })
    }

    /// Reads the flows from the start. A line without a word that says otherwise is of `command`;
    /// only in a file to add from can there be such words.
    pub(crate) fn flows<'a>(
        &'a self,
        command: FlowCommand,
        names: &'a (dyn PortNames + Sync),
    ) -> anyhow::Result<Flows<'a>> {
        let mut file = &self.file;
        file.rewind().with_context(|| format!("cannot read {}", self.name))?;
        let reader = BufReader::with_capacity(READ_BYTES, file);
        Ok(Flows { file: self, reader, line: String::new(), number: 0, command, names })
    }

    /// Reads all flows to see whether they are right; how many there are.
    pub(crate) fn check(
        &self,
        command: FlowCommand,
        names: &(dyn PortNames + Sync),
    ) -> anyhow::Result<usize> {
        self.flows(command, names)?.try_fold(0, |count, flow| flow.map(|_| count + 1))
    }

    /// The number of the line with the flow of this index.
    pub(crate) fn line_of(
        &self,
        index: usize,
        command: FlowCommand,
        names: &(dyn PortNames + Sync),
    ) -> anyhow::Result<usize> {
        let mut flows = self.flows(command, names)?;
        flows.by_ref().nth(index).transpose()?;
        Ok(flows.number)
    }
}

/// Bytes read at a time.
const READ_BYTES: usize = 256 << 10;

fn open(path: &str) -> io::Result<File> {
    if path == "-" {
        return copy(io::stdin().lock());
    }
    let file = File::open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { copy(file) }
}

/// Copies to a file that has no name any more.
fn copy(source: impl Read) -> io::Result<File> {
    let directory = std::env::temp_dir();
    let path = directory.join(format!("ofctl-{}", std::process::id()));
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    let length = io::copy(&mut source.take(FLOW_FILE_MAX_BYTES + 1), &mut file)?;
    if length > FLOW_FILE_MAX_BYTES {
        return Err(io::Error::other(format!("longer than {} GiB", FLOW_FILE_MAX_BYTES >> 30)));
    }
    Ok(file)
}

/// The flows of a file, as they are read.
pub(crate) struct Flows<'a> {
    file: &'a FlowFile,
    reader: BufReader<&'a File>,
    line: String,
    /// Number of the line read last.
    number: usize,
    command: FlowCommand,
    names: &'a (dyn PortNames + Sync),
}

impl Iterator for Flows<'_> {
    type Item = anyhow::Result<FlowMod>;

    fn next(&mut self) -> Option<anyhow::Result<FlowMod>> {
        loop {
            match self.read_line() {
                Ok(false) => return None,
                Ok(true) => {}
                Err(error) => return Some(Err(error)),
            }
            let parsed = parse_flow_line(&self.line, self.command, self.names);
            match parsed.map_err(|error| anyhow!("{}:{}: {error}", self.file.name, self.number)) {
                Ok(None) => {}
                Ok(Some(flow)) => return Some(Ok(flow)),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl Flows<'_> {
    /// Reads the next line; false at the end.
    fn read_line(&mut self) -> anyhow::Result<bool> {
        self.line.clear();
        self.number += 1;
        let mut bounded = self.reader.by_ref().take(FLOW_TEXT_MAX_BYTES as u64 + 2);
        let read = bounded.read_line(&mut self.line);
        let read = read.map_err(|error| anyhow!("{}:{}: {error}", self.file.name, self.number))?;
        if read > FLOW_TEXT_MAX_BYTES && !self.line.ends_with('\n') {
            bail!(
                "{}:{}: a line is longer than {FLOW_TEXT_MAX_BYTES} bytes",
                self.file.name,
                self.number
            );
        }
        Ok(read > 0)
    }
}
