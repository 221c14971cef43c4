//! Limit of keys with equal hashes. A set or map of many such keys, which an attacker may choose,
//! takes quadratic time.

use std::collections::HashMap;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

/// Keys of one hash that a set or a map may have. Chance brings two in billions.
const MOST: u32 = 64;

/// The hashes of the keys of one set or map. Those of text and bytes are secret, and are not looked
/// at.
#[derive(Default)]
pub struct Hashes {
    counts: HashMap<isize, u32>,
}

impl Hashes {
    /// One more key. False: too many have its hash.
    pub fn add(&mut self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        if key.is_exact_instance_of::<PyString>() || key.is_exact_instance_of::<PyBytes>() {
            return Ok(true);
        }
        let count = self.counts.entry(key.hash()?).or_default();
        *count += 1;
        Ok(*count <= MOST)
    }

    /// True if a container with so few keys can't exceed the limit.
    pub fn are_few(keys: usize) -> bool {
        keys <= MOST as usize
    }
}
