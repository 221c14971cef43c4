//! Encoding plans by type, for types that have no plain form.
//!
//! `tidewire.values.plans` chooses the plan once for each type.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};
use tidewire_engine::raw::Mutex;

use crate::interpreter::once::Once;
use crate::values::writer;

pub enum Plan {
    /// A subclass of a built-in type, which travels as that.
    Text,
    Integer,
    Float,
    Bytes,
    Bytearray,
    List,
    Dict,
    Tuple,
    Set,
    Frozenset,
    /// Types of the standard library.
    Memoryview,
    Datetime,
    Date,
    Time,
    Duration,
    Decimal,
    Uuid,
    Complex,
    Error,
    Array,
    Scalar,
    Record {
        name: String,
        fields: Vec<Field>,
    },
    /// A record whose fields differ from object to object. The function returns them as a dict.
    Mapped {
        name: String,
        fields: Py<PyAny>,
    },
    /// A map of a type of its own. The function returns the type name and a plain map.
    Map {
        describe: Py<PyAny>,
    },
    Enum {
        name: String,
    },
    /// No data. A hook may know it.
    Unknown,
}

/// A field of a record, and its name as it is written.
pub struct Field {
    pub name: Py<PyString>,
    pub key: Vec<u8>,
}

type PlanCache = HashMap<usize, (Py<PyType>, Arc<Plan>)>;

/// Plans by the address of the type, which the entry keeps alive.
static KNOWN: LazyLock<Mutex<PlanCache>> = LazyLock::new(Mutex::default);

/// Types that are remembered. Programs that make types as they run must not fill the memory with
/// them.
const KNOWN_MAX: usize = 4_096;

pub fn plan_of(value: &Bound<'_, PyAny>) -> PyResult<Arc<Plan>> {
    let address = value.get_type_ptr() as usize;
    if let Some((_, plan)) = KNOWN.lock().get(&address) {
        return Ok(Arc::clone(plan));
    }
    let kind = value.get_type();
    let plan = Arc::new(ask(&kind)?);
    remember(address, kind.unbind(), &plan);
    Ok(plan)
}

fn remember(address: usize, kind: Py<PyType>, plan: &Arc<Plan>) {
    let mut known = KNOWN.lock();
    let before = if known.len() < KNOWN_MAX { PlanCache::new() } else { std::mem::take(&mut *known) };
    let replaced = known.insert(address, (kind, Arc::clone(plan)));
    drop(known);
    // The end of a type may run code, which must not meet the lock.
    drop((before, replaced));
}

/// The plan that Python chooses for a type: its kind, its type name, and further details.
type Answer<'py> = (String, String, Bound<'py, PyAny>);

fn ask(kind: &Bound<'_, PyType>) -> PyResult<Plan> {
    static ASK: Once<Py<PyAny>> = Once::new();
    let ask = ASK.of(kind.py(), "tidewire.values.plans", "plan")?;
    let (plan, name, details): Answer<'_> = ask.call1((kind,))?.extract()?;
    match plan.as_str() {
        "record" => Ok(Plan::Record { name, fields: fields(&details)? }),
        "mapped" => Ok(Plan::Mapped { name, fields: details.unbind() }),
        "map" => Ok(Plan::Map { describe: details.unbind() }),
        "enum" => Ok(Plan::Enum { name }),
        plan => simple(plan).ok_or_else(|| PyValueError::new_err(format!("no plan is called {plan}"))),
    }
}

fn fields(names: &Bound<'_, PyAny>) -> PyResult<Vec<Field>> {
    let names: Vec<Bound<'_, PyString>> = names.extract()?;
    names
        .into_iter()
        .map(|name| {
            let mut key = Vec::new();
            writer::text(&mut key, name.to_str()?);
            Ok(Field { name: name.unbind(), key })
        })
        .collect()
}

fn simple(plan: &str) -> Option<Plan> {
    Some(match plan {
        "str" => Plan::Text,
        "int" => Plan::Integer,
        "float" => Plan::Float,
        "bytes" => Plan::Bytes,
        "bytearray" => Plan::Bytearray,
        "list" => Plan::List,
        "dict" => Plan::Dict,
        "tuple" => Plan::Tuple,
        "set" => Plan::Set,
        "frozenset" => Plan::Frozenset,
        "memoryview" => Plan::Memoryview,
        "datetime" => Plan::Datetime,
        "date" => Plan::Date,
        "time" => Plan::Time,
        "timedelta" => Plan::Duration,
        "Decimal" => Plan::Decimal,
        "UUID" => Plan::Uuid,
        "complex" => Plan::Complex,
        "error" => Plan::Error,
        "array" => Plan::Array,
        "scalar" => Plan::Scalar,
        "unknown" => Plan::Unknown,
        _ => return None,
    })
}
