//! References in values to functions, objects and streams. Serde does not know the node of a value;
//! a thread-local stores the node while a value is encoded or decoded.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, Error as _, Visitor};
use serde::ser::{Error as _, Serialize, Serializer};
use tidewire_proto::values::extension as ext;

use super::decode_error::coded;
use super::names::name_of;
use crate::objects::{KeyedReference, Objects, OutboundReference, ReferenceFields, Target, WireReference};

/// Newtype name with which a reference calls its deserializer.
pub(crate) const REFERENCE: &str = "\0tidewire:reference";

thread_local! {
    /// The node whose value is encoded or decoded; None: references are refused.
    static HERE: RefCell<Option<Arc<Objects>>> = const { RefCell::new(None) };
    /// References of the value that is being encoded.
    static OFFERED: RefCell<Vec<KeyedReference>> = const { RefCell::new(Vec::new()) };
}

/// Writes or reads something of a node: functions, objects and streams may be in it; without a node
/// they are refused.
pub(crate) fn within<T>(objects: Option<&Arc<Objects>>, act: impl FnOnce() -> T) -> T {
    struct Restore(Option<Arc<Objects>>);

    impl Drop for Restore {
        fn drop(&mut self) {
            HERE.replace(self.0.take());
        }
    }

    let _outer = Restore(HERE.replace(objects.cloned()));
    act()
}

/// Encodes one value, and returns its references.
pub(crate) fn gathered<T>(write: impl FnOnce() -> T) -> (T, Vec<KeyedReference>) {
    struct Restore(Vec<KeyedReference>);

    impl Drop for Restore {
        fn drop(&mut self) {
            OFFERED.replace(std::mem::take(&mut self.0));
        }
    }

    let _outer = Restore(OFFERED.take());
    let written = write();
    (written, OFFERED.take())
}

/// Writes a reference to something of this node, or of the node that it goes to.
pub(crate) fn serialize<S: Serializer>(offer: OutboundReference, serializer: S) -> Result<S::Ok, S::Error> {
    let Some(objects) = HERE.with_borrow(Clone::clone) else {
        let text = "streams, functions and objects can be sent as arguments and results of calls only";
        return Err(S::Error::custom(text));
    };
    let (offered, fields) =
        objects.offered(offer).map_err(|error| S::Error::custom(coded(error.code(), error.message())))?;
    let written = serializer.serialize_newtype_struct(name_of(ext::REFERENCE), &Fields(fields))?;
    OFFERED.with_borrow_mut(|all| all.push(offered));
    Ok(written)
}

/// Decodes a reference, and converts its target.
pub(crate) fn deserialize<'de, D: Deserializer<'de>, T>(
    expected: &'static str,
    from: D,
    made: impl FnOnce(Target) -> Result<T, &'static str>,
) -> Result<T, D::Error> {
    let Some(objects) = HERE.with_borrow(Clone::clone) else {
        let text = "streams, functions and objects are read in arguments and results of calls only";
        return Err(D::Error::custom(text));
    };
    from.deserialize_newtype_struct(REFERENCE, Reference { expected, objects, made })
}

struct Reference<F> {
    expected: &'static str,
    objects: Arc<Objects>,
    made: F,
}

impl<'de, T, F: FnOnce(Target) -> Result<T, &'static str>> Visitor<'de> for Reference<F> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, content: D) -> Result<T, D::Error> {
        let reference = WireReference::deserialize(content)?;
        let target =
            self.objects.take(reference).map_err(|error| D::Error::custom(coded(error.code(), error.message())))?;
        (self.made)(target).map_err(D::Error::custom)
    }
}

/// A reference, encoded as a map.
struct Fields(ReferenceFields);

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}
