//! Values of statements and answers, between the store's types and those of PostgreSQL.

use std::error::Error;

use postgres::Row;
use postgres::types::private::BytesMut;
use postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};
use tidewire_backend::sql::{Cell, Field};

/// Microseconds from 1970, where times begin here, to 2000, where they begin in PostgreSQL.
pub(crate) const EPOCH_US: i64 = 946_684_800_000_000;

/// A value of a statement.
#[derive(Debug)]
pub(crate) struct Parameter<'a>(pub Cell<'a>);

impl ToSql for Parameter<'_> {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self.0 {
            Cell::Null => Ok(IsNull::Yes),
            Cell::Integer(value) => value.to_sql(kind, out),
            Cell::Float(value) => value.to_sql(kind, out),
            Cell::Boolean(value) => value.to_sql(kind, out),
            Cell::Text(value) => value.to_sql(kind, out),
            Cell::Bytes(value) => value.to_sql(kind, out),
            Cell::Time(value) => value.saturating_sub(EPOCH_US).to_sql(&Type::INT8, out),
        }
    }

    fn accepts(_kind: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// A value as its bytes: the binary form of a type.
pub(crate) struct Raw<'a>(pub &'a [u8]);

impl<'a> FromSql<'a> for Raw<'a> {
    fn from_sql(_kind: &Type, bytes: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(bytes))
    }

    fn accepts(_kind: &Type) -> bool {
        true
    }
}

impl Raw<'_> {
    pub fn integer(&self) -> Option<i64> {
        self.0.try_into().ok().map(i64::from_be_bytes)
    }

    pub fn float(&self) -> Option<f64> {
        self.0.try_into().ok().map(f64::from_be_bytes)
    }

    pub fn boolean(&self) -> Option<bool> {
        self.0.first().map(|byte| *byte != 0)
    }
}

/// The values of a row of an answer.
pub(crate) fn fields(row: &Row) -> Result<Vec<Field>, postgres::Error> {
    let one = |at: usize| {
        let kind = row.columns()[at].type_();
        Ok(match *kind {
            Type::FLOAT8 => row.try_get::<_, Option<f64>>(at)?.map_or(Field::Null, Field::Float),
            Type::BOOL => row.try_get::<_, Option<bool>>(at)?.map_or(Field::Null, |value| Field::Integer(value.into())),
            Type::BYTEA => row.try_get::<_, Option<Vec<u8>>>(at)?.map_or(Field::Null, Field::Bytes),
            Type::TIMESTAMPTZ => {
                let raw = row.try_get::<_, Option<Raw<'_>>>(at)?.and_then(|raw| raw.integer());
                raw.map_or(Field::Null, |since| Field::Integer(since.saturating_add(EPOCH_US)))
            }
            Type::INT8 => row.try_get::<_, Option<i64>>(at)?.map_or(Field::Null, Field::Integer),
            _ => row.try_get::<_, Option<String>>(at)?.map_or(Field::Null, Field::Text),
        })
    };
    (0..row.len()).map(one).collect()
}
