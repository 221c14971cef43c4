//! Encoder of values with a plan: records, enums, errors, arrays, and references by a hook.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyComplex, PyComplexMethods, PyDict, PyMemoryView, PyString, PyTuple};
use tidewire_proto::values::extension as ext;

use crate::interpreter::once::{Once, intern};
use crate::values::INLINE_BYTES;
use crate::values::encode::Encoder;
use crate::values::failure::{Failure, Reason, WriteResult, not_data};
use crate::values::plans::{Field, Plan, plan_of};
use crate::values::{times, writer};

impl<'py> Encoder<'_, 'py> {
    pub fn by_plan(&mut self, value: &Bound<'py, PyAny>) -> WriteResult {
        let plan: Arc<Plan> = plan_of(value).map_err(|failure| Failure::new(Reason::Raised(failure)))?;
        match &*plan {
            Plan::Record { name, fields } => self.record(value, name, fields),
            Plan::Mapped { name, fields } => self.mapped(value, name, fields.bind(self.py)),
            Plan::Map { describe } => self.map_of_type(value, describe.bind(self.py)),
            Plan::Enum { name } => self.member(value, name),
            Plan::Error => self.error(value),
            Plan::Array => self.array(value),
            Plan::Scalar => self.scalar(value),
            Plan::Unknown => self.reference(value),
            plan => self.known(value, plan),
        }
    }

    fn known(&mut self, value: &Bound<'py, PyAny>, plan: &Plan) -> WriteResult {
        match plan {
            Plan::Text => self.text(cast(value)?),
            Plan::Integer => self.integer(cast(value)?),
            Plan::Float => self.float(cast(value)?),
            Plan::Bytes => self.bytes(cast(value)?),
            Plan::Bytearray => self.bytearray(cast(value)?),
            Plan::List => self.list(cast(value)?),
            Plan::Dict => self.dict(cast(value)?),
            Plan::Tuple => self.tuple(cast(value)?),
            Plan::Set => self.set(value, ext::SET),
            Plan::Frozenset => self.set(value, ext::FROZENSET),
            Plan::Memoryview => self.view(value),
            Plan::Decimal => self.decimal(value),
            Plan::Uuid => self.uuid(value),
            Plan::Complex => self.complex(cast(value)?),
            Plan::Datetime => times::datetime(&mut self.out, cast(value)?),
            Plan::Date => times::date(&mut self.out, cast(value)?),
            Plan::Time => times::time(&mut self.out, cast(value)?),
            Plan::Duration => times::duration(&mut self.out, cast(value)?),
            _ => Err(not_data(value)),
        }
    }

    fn record(&mut self, record: &Bound<'py, PyAny>, name: &str, fields: &[Field]) -> WriteResult {
        self.enter(record)?;
        let start = self.typed(ext::RECORD, name);
        writer::map(&mut self.out, fields.len());
        for Field { name, key } in fields {
            let value = record.getattr(name.bind(self.py)).map_err(|failure| Failure::raised(self.py, failure))?;
            self.out.extend_from_slice(key);
            self.value(&value).map_err(|failure| failure.at_field(&name.to_string()).inside(record))?;
        }
        self.leave();
        self.close(start)
    }

    fn mapped(&mut self, record: &Bound<'py, PyAny>, name: &str, fields: &Bound<'py, PyAny>) -> WriteResult {
        self.enter(record)?;
        let fields = fields.call1((record,)).map_err(|failure| Failure::raised(self.py, failure))?;
        let fields = cast::<PyDict>(&fields)?;
        let start = self.typed(ext::RECORD, name);
        writer::map(&mut self.out, fields.len());
        for (name, value) in fields.copy().map_err(|failure| Failure::raised(self.py, failure))? {
            self.value(&name)?;
            self.value(&value).map_err(|failure| failure.at_field(&name.to_string()).inside(record))?;
        }
        self.leave();
        self.close(start)
    }

    /// Writes a map of a type of its own: `describe` returns a type name and a plain map.
    fn map_of_type(&mut self, map: &Bound<'py, PyAny>, describe: &Bound<'py, PyAny>) -> WriteResult {
        let described = describe.call1((map,)).and_then(|described| described.extract());
        let (name, entries): (String, Bound<'py, PyDict>) =
            described.map_err(|failure| Failure::raised(self.py, failure))?;
        self.enter(map)?;
        let start = self.typed(ext::RECORD, &name);
        writer::map(&mut self.out, entries.len());
        // Nothing else refers to these entries.
        for (key, value) in entries {
            self.value(&key).map_err(|failure| failure.at_key(&key).inside(map))?;
            self.value(&value).map_err(|failure| failure.at_key(&key).inside(map))?;
        }
        self.leave();
        self.close(start)
    }

    fn member(&mut self, member: &Bound<'py, PyAny>, name: &str) -> WriteResult {
        self.enter(member)?;
        let value = member.getattr(intern!(self.py, "_value_")).map_err(|failure| Failure::raised(self.py, failure))?;
        let start = self.typed(ext::ENUM, name);
        self.value(&value).map_err(|failure| failure.at_field("value"))?;
        self.leave();
        self.close(start)
    }

    /// Begins an extension with a type name and one more value.
    fn typed(&mut self, kind: i8, name: &str) -> usize {
        let start = writer::open(&mut self.out, kind);
        writer::array(&mut self.out, 2);
        writer::text(&mut self.out, name);
        start
    }

    fn error(&mut self, error: &Bound<'py, PyAny>) -> WriteResult {
        static DESCRIBE: Once<Py<PyAny>> = Once::new();
        self.enter(error)?;
        let described = self.ask(&DESCRIBE, "tidewire.values.failures", "describe", error)?;
        let start = writer::open(&mut self.out, ext::ERROR);
        writer::map(&mut self.out, described.len());
        for entry in described {
            let (key, value) = entry
                .extract::<(Bound<'py, PyAny>, Bound<'py, PyAny>)>()
                .map_err(|failure| Failure::raised(self.py, failure))?;
            self.value(&key)?;
            match value.cast_exact::<PyDict>() {
                Ok(state) => self.what_travels(state)?,
                Err(_) => self.or_nil(&value)?,
            }
        }
        self.leave();
        self.close(start)
    }

    /// Writes a value, or nil in its place if it can't be sent.
    fn or_nil(&mut self, value: &Bound<'py, PyAny>) -> WriteResult {
        let place = self.place();
        match self.value(value) {
            Err(failure) if failure.can_be_left_out() => {
                self.back_to(&place);
                writer::nil(&mut self.out);
                Ok(())
            }
            written => written,
        }
    }

    /// Writes those entries of a dict that can be sent.
    fn what_travels(&mut self, state: &Bound<'py, PyDict>) -> WriteResult {
        let sendable = PyDict::new(self.py);
        for (key, value) in state.copy().map_err(|failure| Failure::raised(self.py, failure))? {
            let place = self.place();
            match self.value(&key).and_then(|()| self.value(&value)) {
                Err(failure) if !failure.can_be_left_out() => return Err(failure),
                Err(_) => {}
                Ok(()) => sendable.set_item(key, value).map_err(|failure| Failure::raised(self.py, failure))?,
            }
            self.back_to(&place);
        }
        self.dict(&sendable)
    }

    fn array(&mut self, array: &Bound<'py, PyAny>) -> WriteResult {
        static DESCRIBE: Once<Py<PyAny>> = Once::new();
        self.enter(array)?;
        let described = self.ask(&DESCRIBE, "tidewire.values.arrays", "describe", array)?;
        let start = writer::open(&mut self.out, ext::ARRAY);
        writer::array(&mut self.out, described.len());
        for part in described {
            match part.cast_exact::<PyTuple>() {
                Ok(lengths) => self.lengths(lengths)?,
                Err(_) if part.is_instance_of::<PyString>() => self.value(&part)?,
                Err(_) => self.memory(&part)?,
            }
        }
        self.leave();
        self.close(start)
    }

    fn lengths(&mut self, lengths: &Bound<'py, PyTuple>) -> WriteResult {
        writer::array(&mut self.out, lengths.len());
        for length in lengths {
            self.value(&length)?;
        }
        Ok(())
    }

    /// Writes contiguous memory as bytes.
    fn memory(&mut self, memory: &Bound<'py, PyAny>) -> WriteResult {
        let bytes = memory.getattr(intern!(self.py, "nbytes")).and_then(|bytes| bytes.extract::<usize>());
        let bytes = bytes.map_err(|failure| Failure::raised(self.py, failure))?;
        if bytes > INLINE_BYTES {
            // The view keeps the memory as it is until it has been copied.
            let view = PyMemoryView::from(memory).map_err(|failure| Failure::raised(self.py, failure))?;
            return self.part(view.into_any(), bytes, ext::BUFFER);
        }
        let copy =
            memory.call_method0(intern!(self.py, "tobytes")).map_err(|failure| Failure::raised(self.py, failure))?;
        writer::bytes(&mut self.out, cast::<PyBytes>(&copy)?.as_bytes());
        Ok(())
    }

    fn view(&mut self, view: &Bound<'py, PyAny>) -> WriteResult {
        let contiguous = view.getattr(intern!(self.py, "c_contiguous")).and_then(|answer| answer.extract::<bool>());
        if contiguous.map_err(|failure| Failure::raised(self.py, failure))? {
            return self.memory(view);
        }
        let copy =
            view.call_method0(intern!(self.py, "tobytes")).map_err(|failure| Failure::raised(self.py, failure))?;
        self.bytes(cast(&copy)?)
    }

    fn scalar(&mut self, scalar: &Bound<'py, PyAny>) -> WriteResult {
        static DESCRIBE: Once<Py<PyAny>> = Once::new();
        self.enter(scalar)?;
        let described = self.ask(&DESCRIBE, "tidewire.values.arrays", "describe_scalar", scalar)?;
        let start = writer::open(&mut self.out, ext::SCALAR);
        writer::array(&mut self.out, described.len());
        for part in described {
            self.value(&part)?;
        }
        self.leave();
        self.close(start)
    }

    /// Asks the Python half for the parts of an object.
    fn ask(
        &self,
        function: &Once<Py<PyAny>>,
        module: &str,
        name: &str,
        value: &Bound<'py, PyAny>,
    ) -> Result<Bound<'py, PyTuple>, Box<Failure>> {
        let called = function.of(self.py, module, name).and_then(|function| function.call1((value,)));
        let parts = called.map_err(|failure| Failure::raised(self.py, failure))?;
        parts.cast_into().map_err(|failure| Failure::raised(self.py, failure.into()))
    }

    fn decimal(&mut self, value: &Bound<'py, PyAny>) -> WriteResult {
        let text = value.str().map_err(|failure| Failure::raised(self.py, failure))?;
        let text = text.to_str().map_err(|failure| Failure::raised(self.py, failure))?;
        writer::extension(&mut self.out, ext::DECIMAL, text.as_bytes());
        Ok(())
    }

    fn uuid(&mut self, value: &Bound<'py, PyAny>) -> WriteResult {
        let bytes = value.getattr(intern!(self.py, "bytes")).map_err(|failure| Failure::raised(self.py, failure))?;
        writer::extension(&mut self.out, ext::UUID, cast::<PyBytes>(&bytes)?.as_bytes());
        Ok(())
    }

    fn complex(&mut self, value: &Bound<'py, PyComplex>) -> WriteResult {
        let mut content = [0; 16];
        content[..8].copy_from_slice(&value.real().to_be_bytes());
        content[8..].copy_from_slice(&value.imag().to_be_bytes());
        writer::extension(&mut self.out, ext::COMPLEX, &content);
        Ok(())
    }

    /// Asks the hook for what stands for an object, and writes that, without asking again.
    fn reference(&mut self, object: &Bound<'py, PyAny>) -> WriteResult {
        let Some(hook) = self.hook.take() else { return Err(not_data(object)) };
        let reference = hook.call1((object,)).map_err(|failure| Failure::new(Reason::Raised(failure)));
        let written = reference.and_then(|reference| {
            if reference.is_none() { Err(not_data(object)) } else { self.write_reference(&reference) }
        });
        self.hook = Some(hook);
        written
    }

    fn write_reference(&mut self, value: &Bound<'py, PyAny>) -> WriteResult {
        self.enter(value)?;
        let start = writer::open(&mut self.out, ext::REFERENCE);
        self.value(value)?;
        self.leave();
        self.close(start)
    }
}

fn cast<'b, 'py, T: pyo3::PyTypeCheck>(value: &'b Bound<'py, PyAny>) -> Result<&'b Bound<'py, T>, Box<Failure>> {
    value.cast().map_err(|_| not_data(value))
}
