//! The arguments of a call, by position or by name, as the parameters of a method.

use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;
use tidewire_proto::values::extension as ext;

use super::cursor::{Cursor, Token};
use super::decode_error::DecodeError;
use super::reader::Reader;

/// Reads the arguments for parameters of these names. A tuple takes all of them in order, any other
/// type the only one.
pub(crate) fn read<'de, T: DeserializeOwned>(input: &'de [u8], names: &'de [String]) -> Result<T, DecodeError> {
    let mut cursor = Cursor::new(input)?;
    let places = places(&mut cursor, names)?;
    T::deserialize(Arguments { cursor, names, places })
}

/// Where the argument for each parameter begins; None where there is none.
fn places(cursor: &mut Cursor<'_>, names: &[String]) -> Result<Vec<Option<usize>>, DecodeError> {
    let mut places = vec![None; names.len()];
    match cursor.token()? {
        Token::Nil => {}
        Token::Extension(ext::TUPLE, bytes) => {
            cursor.within(bytes, |cursor| {
                let count = cursor.array()?;
                positional(cursor, count, &mut places)
            })?;
        }
        Token::List(count) => list(cursor, count, names, &mut places)?,
        Token::Map(count) => named(cursor, count, names, &mut places)?,
        _ => return Err(DecodeError::unfit("the arguments are one value: send a list of them, or a map by name")),
    }
    cursor.finish()?;
    Ok(places)
}

/// A list of arguments; one of a list and a map holds those by position and those by name.
fn list(
    cursor: &mut Cursor<'_>,
    count: usize,
    names: &[String],
    places: &mut [Option<usize>],
) -> Result<(), DecodeError> {
    let begin = cursor.mark();
    let is_both = count == 2 && {
        cursor.skip()?;
        matches!(cursor.peek()?, Token::Map(_))
    };
    cursor.back_to(&begin);
    if !is_both {
        return positional(cursor, count, places);
    }
    match cursor.token()? {
        Token::List(count) => positional(cursor, count, places)?,
        Token::Extension(ext::TUPLE, bytes) => {
            cursor.within(bytes, |cursor| {
                let count = cursor.array()?;
                positional(cursor, count, places)
            })?;
        }
        _ => return Err(DecodeError::unfit("the arguments by position are no list")),
    }
    match cursor.token()? {
        Token::Map(count) => named(cursor, count, names, places),
        _ => Err(cursor.wrong("the arguments by name are no map")),
    }
}

fn positional(cursor: &mut Cursor<'_>, count: usize, places: &mut [Option<usize>]) -> Result<(), DecodeError> {
    if count > places.len() {
        return Err(DecodeError::unfit(format!("{count} arguments are more than the {} that it takes", places.len())));
    }
    for place in &mut places[..count] {
        *place = Some(cursor.at());
        cursor.skip()?;
    }
    Ok(())
}

fn named(
    cursor: &mut Cursor<'_>,
    count: usize,
    names: &[String],
    places: &mut [Option<usize>],
) -> Result<(), DecodeError> {
    for _ in 0..count {
        let Token::Text(span) = cursor.token()? else {
            return Err(DecodeError::unfit("the name of an argument is no text"));
        };
        let name = cursor.text(span)?;
        let Some(number) = names.iter().position(|known| known == name) else {
            let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            return Err(DecodeError::unfit(format!("{name:?} is not the name of a parameter: there are {known}")));
        };
        if places[number].is_some() {
            return Err(DecodeError::unfit("it is given twice, by position and by name").inside_of(name));
        }
        places[number] = Some(cursor.at());
        cursor.skip()?;
    }
    Ok(())
}

struct Arguments<'de> {
    cursor: Cursor<'de>,
    names: &'de [String],
    places: Vec<Option<usize>>,
}

impl<'de> Arguments<'de> {
    fn argument<S: DeserializeSeed<'de>>(&mut self, number: usize, seed: S) -> Result<S::Value, DecodeError> {
        let read = match self.places[number] {
            Some(place) => {
                self.cursor.go_to(place);
                seed.deserialize(Reader(&mut self.cursor))
            }
            None => seed.deserialize(Missing),
        };
        read.map_err(|wrong| wrong.inside_of(&self.names[number]))
    }

    fn only(mut self) -> Result<(Cursor<'de>, &'de str), DecodeError> {
        let [name] = self.names else {
            let text = format!("a method with the parameters {} takes them as a tuple", self.names.join(", "));
            return Err(DecodeError::unfit(text));
        };
        let Some(place) = self.places[0] else { return Err(nothing().inside_of(name)) };
        self.cursor.go_to(place);
        Ok((self.cursor, name))
    }

    fn of_only<T>(self, read: impl FnOnce(Reader<'_, 'de>) -> Result<T, DecodeError>) -> Result<T, DecodeError> {
        let (mut cursor, name) = self.only()?;
        read(Reader(&mut cursor)).map_err(|wrong| wrong.inside_of(name))
    }
}

fn nothing() -> DecodeError {
    DecodeError::unfit("nothing was given: give a value")
}

impl<'de> Deserializer<'de> for Arguments<'de> {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.of_only(|reader| reader.deserialize_any(visitor))
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        if self.names.is_empty() { visitor.visit_unit() } else { self.deserialize_any(visitor) }
    }

    fn deserialize_tuple<V: Visitor<'de>>(mut self, count: usize, visitor: V) -> Result<V::Value, DecodeError> {
        if count != self.names.len() {
            let text = format!("its handler takes {count} arguments, and it was declared with {}", self.names.len());
            return Err(DecodeError::unfit(text));
        }
        visitor.visit_seq(InOrder { of: &mut self, next: 0 })
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        if self.names.len() == 1 && self.places[0].is_none() {
            return visitor.visit_none();
        }
        self.of_only(|reader| reader.deserialize_option(visitor))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        self.of_only(|reader| reader.deserialize_newtype_struct(name, visitor))
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.of_only(|reader| reader.deserialize_seq(visitor))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        self.of_only(|reader| reader.deserialize_enum(name, variants, visitor))
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf map struct identifier
        unit_struct tuple_struct ignored_any
    }
}

struct InOrder<'a, 'de> {
    of: &'a mut Arguments<'de>,
    next: usize,
}

impl<'de> SeqAccess<'de> for InOrder<'_, 'de> {
    type Error = DecodeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, DecodeError> {
        let number = self.next;
        self.next += 1;
        if number < self.of.names.len() { self.of.argument(number, seed).map(Some) } else { Ok(None) }
    }
}

/// A missing argument: nothing, for an optional parameter.
struct Missing;

impl<'de> Deserializer<'de> for Missing {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, DecodeError> {
        Err(nothing())
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_none()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}
