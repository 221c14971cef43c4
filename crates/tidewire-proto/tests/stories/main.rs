//! Subjects and the codec of links, told as short stories.

mod subject;
mod wire;
mod wire_random;
mod wire_vectors;
