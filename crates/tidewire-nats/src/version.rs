//! The version of a nats-server.

/// Major, minor and patch number. A suffix such as `-RC.1` does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, derive_more::Display)]
#[display("{_0}.{_1}.{_2}")]
pub(crate) struct Version(pub u32, pub u32, pub u32);

impl Version {
    /// Reads `2.12.1`; a part that is no number counts as 0.
    pub fn read(text: &str) -> Self {
        let mut numbers = text.split(['.', '-', '+']).map(|part| part.parse().unwrap_or(0));
        let mut next = || numbers.next().unwrap_or(0);
        Self(next(), next(), next())
    }
}

#[cfg(test)]
mod tests {
    use super::Version;

    #[test]
    fn versions_order_by_their_numbers() {
        assert_eq!(Version::read("2.11.0-RC.1"), Version(2, 11, 0));
        assert!(Version::read("2.9.25") < Version::read("2.11.0"));
        assert!(Version::read("2.12.10") > Version::read("2.12.9"));
        assert_eq!(Version::read("").to_string(), "0.0.0");
    }
}
