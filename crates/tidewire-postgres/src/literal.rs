//! SQL literals: values in the text of statements, so that several statements can go to the server
//! at once.
//!
//! The driver sends a statement with parameters only after the reply to the one before. The driver
//! sends a text of many statements as it is. Every connection has `standard_conforming_strings`,
//! with which a text ends at its first quote that is not doubled.

use std::fmt::Write as _;

use tidewire_backend::sql::Cell;

/// A statement with its values in the places of `?1`, `?2`, ...
pub(crate) fn filled(statement: &str, values: &[Cell<'_>]) -> String {
    let mut parts = statement.split('?');
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        let place: usize = part[..digits].parse().unwrap_or(0);
        match place.checked_sub(1).and_then(|at| values.get(at)) {
            Some(value) => push(&mut filled, value),
            None => filled.push_str("NULL"),
        }
        filled.push_str(&part[digits..]);
    }
    filled
}

fn push(filled: &mut String, value: &Cell<'_>) {
    let written = match value {
        Cell::Null => write!(filled, "NULL"),
        Cell::Integer(value) => write!(filled, "({value})"),
        // The shortest digits that give the same bits again; 'NaN' and 'inf' are read, too.
        Cell::Float(value) => write!(filled, "'{value:?}'::float8"),
        Cell::Boolean(value) => write!(filled, "{value}"),
        Cell::Text(text) => write!(filled, "'{}'", text.replace('\'', "''")),
        Cell::Bytes(bytes) => {
            let hexadecimal: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            write!(filled, "'\\x{hexadecimal}'::bytea")
        }
        Cell::Time(us) => write!(filled, "('epoch'::timestamptz + ({us}) * '1 microsecond'::interval)"),
    };
    debug_assert!(written.is_ok(), "a string takes everything");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stand_where_their_numbers_are() {
        let values =
            [Cell::Integer(-7), Cell::Text("Ann's \\ ?1; DROP TABLE \"x\" --"), Cell::Null, Cell::Bytes(&[0, 255])];
        let filled = filled("UPDATE t SET a = ?2, b = ?3, c = ?4 WHERE id = ?1 OR id - ?1 = 0", &values);
        let expected = "UPDATE t SET a = 'Ann''s \\ ?1; DROP TABLE \"x\" --', b = NULL, c = '\\x00ff'::bytea \
            WHERE id = (-7) OR id - (-7) = 0";
        assert_eq!(filled, expected);
    }
}
