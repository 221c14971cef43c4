//! Traits that subjects and patterns have because each of them is a checked text.

/// Implements the traits of a tuple struct around an `Arc<str>` that has a fallible `new`.
macro_rules! text_traits {
    ($type:ident) => {
        impl core::fmt::Display for $type {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.pad(&self.0)
            }
        }

        impl core::fmt::Debug for $type {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                write!(f, concat!(stringify!($type), "({:?})"), &*self.0)
            }
        }

        impl AsRef<str> for $type {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl core::borrow::Borrow<str> for $type {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl core::str::FromStr for $type {
            type Err = SubjectError;

            fn from_str(text: &str) -> Result<Self, SubjectError> {
                Self::new(text)
            }
        }

        impl TryFrom<&str> for $type {
            type Error = SubjectError;

            fn try_from(text: &str) -> Result<Self, SubjectError> {
                Self::new(text)
            }
        }
    };
}
