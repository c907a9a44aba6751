//! Writing to the terminal.

use std::io::{self, Write};

use comfy_table::{CellAlignment, Table, presets};

/// Standard output could not be written. A type of its own, because a switch that hangs up is the
/// same `io::Error`, and must never pass for a reader of the output that has gone away.
#[derive(Debug)]
pub(crate) struct OutputError(io::Error);

impl std::fmt::Display for OutputError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "standard output: {}", self.0)
    }
}

impl std::error::Error for OutputError {}

/// Prints to standard output; a reader that has gone away is an error that ends the command.
pub(crate) fn print(text: &str) -> Result<(), OutputError> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(OutputError)
}

/// Prints one line about a failure to standard error.
pub(crate) fn fail(message: &str) {
    let line = message.replace('\n', " ");
    let _ = writeln!(io::stderr(), "ofctl: {line}");
}

/// Whether the failure is only that nobody reads the output any more (`ofctl ... | head`).
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<OutputError>()
        .is_some_and(|OutputError(error)| error.kind() == io::ErrorKind::BrokenPipe)
}

/// A column of a table.
#[derive(Clone, Copy)]
pub(crate) enum Align {
    Left,
    Right,
}

/// A table without borders. Without rows it is `empty` instead.
pub(crate) fn table(columns: &[(&str, Align)], rows: Vec<Vec<String>>, empty: &str) -> String {
    if rows.is_empty() {
        return format!("{empty}\n");
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(columns.iter().map(|(name, _)| *name));
    table.add_rows(rows);
    for (column, (_, align)) in table.column_iter_mut().zip(columns) {
        column.set_padding((0, 2));
        column.set_cell_alignment(match align {
            Align::Left => CellAlignment::Left,
            Align::Right => CellAlignment::Right,
        });
    }
    let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n") + "\n"
}
