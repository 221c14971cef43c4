//! Entries of a key-value bucket.

use bytes::Bytes;
use tidewire_core::stream::keyvalue::{Bucket, Expect, Options, Refusal};

#[test]
fn a_bucket_is_bounded() {
    let mut bucket = Bucket::new(Options { history: 1, ttl_us: None, max_bytes: Some(1_000), deleted_max: 3 });
    let big = Bytes::from(vec![0; 900]);
    bucket.put("a", big.clone(), Expect::Any, None, 0).expect("there is room");
    assert!(matches!(bucket.put("b", big.clone(), Expect::Any, None, 0), Err(Refusal::Full(_))));
    bucket.put("a", big, Expect::Any, None, 0).expect("it takes the place of the old one");
    for number in 0..50 {
        let key = format!("k{number}");
        bucket.put(&key, Bytes::from_static(b"x"), Expect::Any, None, 0).expect("there is room");
        bucket.delete(&key, Expect::Any, false, 0).expect("it is there");
    }
    assert!(bucket.entries().count() <= 4, "of those that were deleted three are remembered");
}
