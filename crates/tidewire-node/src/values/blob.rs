//! The blob: a head alone, or a header, a head and buffers. Its form is in `spec/values.md`.

use std::sync::Arc;

use tidewire_link::{OutgoingPayload, PayloadParts};
use tidewire_proto::generated::limits;
use tidewire_proto::values::{gap, header};

use crate::objects::KeyedReference;

/// A value as it is sent. Its buffers stay where they are, and clones share them.
#[derive(Clone)]
pub(crate) struct Blob {
    pieces: Arc<Vec<Vec<u8>>>,
    bytes: usize,
    /// References in the value, until its receiver is known.
    pub offered: Vec<KeyedReference>,
}

impl Blob {
    /// A head, and the buffers that it refers to.
    pub fn new(head: Vec<u8>, parts: Vec<Vec<u8>>) -> Self {
        if parts.is_empty() {
            return Self { bytes: head.len(), pieces: Arc::new(vec![head]), offered: Vec::new() };
        }
        let mut bytes = 0;
        let mut pieces = Vec::with_capacity(2 * parts.len());
        let mut start = header(&head, parts.iter().map(Vec::len));
        for part in parts {
            start.resize(start.len() + gap(bytes + start.len()), 0);
            bytes += start.len() + part.len();
            pieces.extend([std::mem::take(&mut start), part]);
        }
        Self { pieces: Arc::new(pieces), bytes, offered: Vec::new() }
    }

    /// All of it in one piece.
    pub fn into_bytes(self) -> Vec<u8> {
        let mut pieces = Arc::unwrap_or_clone(self.pieces);
        if pieces.len() == 1 { pieces.swap_remove(0) } else { pieces.concat() }
    }

    /// Puts a key in the place of another one of the same length, which is in it once.
    pub fn rename(&mut self, from: &str, to: &str) {
        for piece in Arc::make_mut(&mut self.pieces) {
            if let Some(at) = piece.windows(from.len()).position(|part| part == from.as_bytes()) {
                piece[at..at + from.len()].copy_from_slice(to.as_bytes());
                return;
            }
        }
    }

    /// The payload for a link: a short one is copied, a long one is shared until its last chunk is
    /// sent.
    pub fn sending(&mut self) -> OutgoingPayload<'_> {
        if self.bytes > limits::LINK_CHUNK_BYTES.default as usize {
            let empty = Self { pieces: Arc::default(), bytes: 0, offered: Vec::new() };
            return OutgoingPayload::Long(Box::new(std::mem::replace(self, empty)));
        }
        match &self.pieces[..] {
            [] => OutgoingPayload::Short(&[]),
            [one] => OutgoingPayload::Short(one),
            _ => OutgoingPayload::Pieces(self),
        }
    }
}

impl PayloadParts for Blob {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn piece(&self, mut at: usize) -> &[u8] {
        for piece in self.pieces.iter() {
            if at < piece.len() {
                return &piece[at..];
            }
            at -= piece.len();
        }
        &[]
    }
}
