//! Tables for the terminal: aligned columns, and no lines around them.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table};

/// Makes an empty table with these headings. A heading that begins with `>` makes a column of numbers, aligned at the right.
pub fn plain_table(headings: &[&str]) -> Table {
    let mut table = Table::new();
    let words = headings.iter().map(|heading| heading.trim_start_matches('>'));
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header(words);
    for (column, heading) in table.column_iter_mut().zip(headings) {
        column.set_padding((0, 2));
        if heading.starts_with('>') {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Returns the table's lines, without spaces at their ends.
pub fn trimmed(table: &Table) -> String {
    let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_what_is_in_them_and_numbers_end_in_the_same_place() {
        let mut table = plain_table(&["name", ">bytes"]);
        table.add_row(["a long name", "7"]).add_row(["b", "1234567"]);
        assert_eq!(trimmed(&table), "name           bytes\na long name        7\nb            1234567");
    }
}
