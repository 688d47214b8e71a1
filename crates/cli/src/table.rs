//! What several commands print: aligned columns, times, and JSON.

use super::control::CommandOutcome;
use forkyard_sys::clock::format_local_time;
use serde::Serialize;

/// A column: its title, and a row's cell in it.
pub(super) type Column<T> = (&'static str, fn(&T) -> String);

/// Aligned columns with their titles above.
pub(super) fn table<T>(rows: &[T], columns: &[Column<T>]) -> String {
    let titles = columns.iter().map(|(title, _)| (*title).to_owned()).collect();
    let cells = |row: &T| columns.iter().map(|(_, cell)| cell(row)).collect();
    aligned(std::iter::once(titles).chain(rows.iter().map(cells)), 0)
}

/// Lines with their cells below each other, the first `numbers` columns at the right.
pub(super) fn aligned(lines: impl IntoIterator<Item = Vec<String>>, numbers: usize) -> String {
    let lines: Vec<Vec<String>> = lines.into_iter().collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
    let widths: Vec<usize> = (0..lines.first().map_or(0, Vec::len)).filter_map(width).collect();
    let mut text = String::new();
    for line in &lines {
        let cells = line.iter().zip(&widths).enumerate();
        let cells = cells.map(|(column, (cell, width))| match column < numbers {
            true => format!("{cell:>width$}"),
            false => format!("{cell:<width$}"),
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// A value, in a command's output.
pub(super) fn shown<T: Serialize + ?Sized>(
    value: &T,
    is_json: bool,
    text: impl FnOnce(&T) -> String,
) -> CommandOutcome {
    CommandOutcome::success(match is_json {
        true => json(value),
        false => text(value),
    })
}

pub(super) fn json(value: &(impl Serialize + ?Sized)) -> String {
    // Serialising plain values to memory can't fail.
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}

/// A time in seconds since 1970, in local time.
pub(super) fn local(time: u64) -> String {
    formatted(time, "%Y-%m-%d %H:%M:%S")
}

pub(super) fn formatted(time: u64, format: &str) -> String {
    String::from_utf8_lossy(&format_local_time(time, format)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_below_each_other() {
        let columns: [Column<&str>; 2] = [("A", |row| (*row).to_owned()), ("LONG", |_| String::new())];
        assert_eq!(table(&["xyz"], &columns), "A    LONG\nxyz\n");
        let lines = ["9 a", "10 b"].map(|line| line.split(' ').map(str::to_owned).collect());
        assert_eq!(aligned(lines, 1), " 9  a\n10  b\n");
    }
}
