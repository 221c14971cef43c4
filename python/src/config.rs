//! The layers of a configuration, from Python objects. An invalid entry raises a `ConfigError` that
//! names the key.

use pyo3::IntoPyObjectExt as _;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use tidewire_config::toml;
use tidewire_config::{Config, ConfigError};

use crate::errors::error;

type Variable<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>);

/// Most tables and lists within each other. No key lies deeper, and a list that holds itself has no
/// end.
const DEPTH: usize = 8;

/// The configuration that code, a file's text with its path, the environment, and options of a
/// command line make together.
pub fn load(
    code: &Bound<'_, PyDict>,
    toml: Option<(Bound<'_, PyString>, String)>,
    environment: Vec<Variable<'_>>,
    options: Vec<(String, String)>,
) -> PyResult<Config> {
    let layer = table(code, "config", DEPTH)?;
    let toml = toml.map(|(origin, text)| (origin.to_string_lossy().into_owned(), text));
    let text = toml.as_ref().map(|(origin, text)| (origin.as_str(), text.as_str()));
    let environment = environment.iter().map(variable).collect::<PyResult<Vec<_>>>()?;
    let loaded = Config::load_with(Some(layer), text, environment, options);
    loaded.map_err(|failure| refused(code.py(), &failure))
}

/// One table of a TOML text as a dict. None if there is no such table or the text is no TOML:
/// loading the configuration reports the error.
#[pyfunction]
pub fn table_of_toml<'py>(py: Python<'py>, text: &str, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
    let table = text.parse::<toml::Table>().unwrap_or_default();
    table.get(name).filter(|value| value.is_table()).map(|value| object(py, value)).transpose()
}

fn object<'py>(py: Python<'py>, value: &toml::Value) -> PyResult<Bound<'py, PyAny>> {
    match value {
        toml::Value::String(text) => text.into_bound_py_any(py),
        toml::Value::Integer(number) => number.into_bound_py_any(py),
        toml::Value::Float(number) => number.into_bound_py_any(py),
        toml::Value::Boolean(flag) => flag.into_bound_py_any(py),
        toml::Value::Datetime(moment) => moment.to_string().into_bound_py_any(py),
        toml::Value::Array(values) => {
            let objects = values.iter().map(|value| object(py, value)).collect::<PyResult<Vec<_>>>()?;
            Ok(PyList::new(py, objects)?.into_any())
        }
        toml::Value::Table(table) => {
            let dict = PyDict::new(py);
            for (key, value) in table {
                dict.set_item(key, object(py, value)?)?;
            }
            Ok(dict.into_any())
        }
    }
}

fn refused(py: Python<'_>, failure: &ConfigError) -> PyErr {
    problems(py, &failure.to_string(), failure.problems.iter().map(ToString::to_string).collect())
}

fn variable((name, value): &Variable<'_>) -> PyResult<(String, String)> {
    match (name.extract(), value.extract()) {
        (Ok(name), Ok(value)) => Ok((name, value)),
        _ => {
            let text = format!("environment.{}: {} is not text that UTF-8 can hold", name.str()?, value.repr()?);
            Err(problem(name.py(), text))
        }
    }
}

fn table(dict: &Bound<'_, PyDict>, path: &str, depth: usize) -> PyResult<toml::Table> {
    let mut table = toml::Table::new();
    for (key, value) in dict {
        let Ok(key) = key.extract::<String>() else {
            return Err(problem(dict.py(), format!("{path}: the key {} is not text that UTF-8 can hold", key.repr()?)));
        };
        let at = format!("{path}.{key}");
        table.insert(key, self::value(&value, &at, depth)?);
    }
    Ok(table)
}

fn value(value: &Bound<'_, PyAny>, path: &str, depth: usize) -> PyResult<toml::Value> {
    if value.is_instance_of::<PyBool>() {
        Ok(toml::Value::Boolean(value.extract()?))
    } else if value.is_instance_of::<PyInt>() {
        // Numbers too large for a configuration are out of every range.
        Ok(toml::Value::Integer(value.extract().unwrap_or(i64::MAX)))
    } else if value.is_instance_of::<PyFloat>() {
        Ok(toml::Value::Float(value.extract()?))
    } else if let Ok(text) = value.extract() {
        Ok(toml::Value::String(text))
    } else {
        nested(value, path, depth)
    }
}

fn nested(value: &Bound<'_, PyAny>, path: &str, depth: usize) -> PyResult<toml::Value> {
    let Some(depth) = depth.checked_sub(1) else {
        return Err(problem(value.py(), format!("{path}: more than {DEPTH} tables or lists lie within each other")));
    };
    if let Ok(dict) = value.cast::<PyDict>() {
        Ok(toml::Value::Table(table(dict, path, depth)?))
    } else if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        let items = value.try_iter()?.map(|item| self::value(&item?, path, depth)).collect::<PyResult<_>>()?;
        Ok(toml::Value::Array(items))
    } else {
        let text = format!("{path}: {} is not a value that a configuration can hold", value.repr()?);
        Err(problem(value.py(), text))
    }
}

fn problem(py: Python<'_>, text: String) -> PyErr {
    problems(py, &text.clone(), vec![text])
}

fn problems(py: Python<'_>, text: &str, problems: Vec<String>) -> PyErr {
    match problems.into_pyobject(py) {
        Ok(problems) => error(py, "ConfigError", text, &[("problems", problems.unbind())]),
        Err(failure) => failure,
    }
}
