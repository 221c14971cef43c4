//! Reads the JSON of the vectors. It is short, so that the crate needs no dependency for it.

use std::iter::Peekable;
use std::str::Chars;

#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    Text(String),
    Number(u64),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Reads a file of texts without escapes, whole numbers, lists and objects. Panics at anything
    /// else.
    pub fn read(text: &str) -> Self {
        let mut chars = text.chars().peekable();
        let json = value(&mut chars);
        assert_eq!(peek(&mut chars), None, "something follows the end of the file's value");
        json
    }

    pub fn get(&self, name: &str) -> Option<&Self> {
        let Self::Object(entries) = self else { panic!("no object: {self:?}") };
        entries.iter().find(|(other, _)| other == name).map(|(_, value)| value)
    }

    pub fn at(&self, name: &str) -> &Self {
        self.get(name).unwrap_or_else(|| panic!("no {name:?} in {self:?}"))
    }

    pub fn list(&self) -> &[Self] {
        let Self::List(items) = self else { panic!("no list: {self:?}") };
        items
    }

    pub fn text(&self) -> &str {
        let Self::Text(text) = self else { panic!("no text: {self:?}") };
        text
    }

    /// A number, or a text of digits, which stands for one of 64 bits.
    pub fn number<N: TryFrom<u64>>(&self) -> N {
        let number = match self {
            Self::Number(number) => *number,
            other => other.text().parse().unwrap_or_else(|_| panic!("no number: {other:?}")),
        };
        N::try_from(number).unwrap_or_else(|_| panic!("{number} is too great for its place"))
    }

    pub fn hex(&self) -> Vec<u8> {
        let digits = self.text().as_bytes();
        assert!(digits.len().is_multiple_of(2) && digits.is_ascii(), "no hex: {self:?}");
        let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).expect("hex");
        digits.chunks(2).map(byte).collect()
    }
}

fn value(chars: &mut Peekable<Chars<'_>>) -> Json {
    match peek(chars) {
        Some('"') => Json::Text(text(chars)),
        Some('[') => Json::List(items(chars, ']', value)),
        Some('{') => Json::Object(items(chars, '}', entry)),
        Some('0'..='9') => Json::Number(digits(chars)),
        other => panic!("{other:?} where a value should begin"),
    }
}

fn items<T>(chars: &mut Peekable<Chars<'_>>, end: char, item: fn(&mut Peekable<Chars<'_>>) -> T) -> Vec<T> {
    let mut items = Vec::new();
    chars.next();
    while peek(chars) != Some(end) {
        if !items.is_empty() {
            take(chars, ',');
        }
        items.push(item(chars));
    }
    take(chars, end);
    items
}

fn entry(chars: &mut Peekable<Chars<'_>>) -> (String, Json) {
    let name = text(chars);
    take(chars, ':');
    (name, value(chars))
}

fn text(chars: &mut Peekable<Chars<'_>>) -> String {
    take(chars, '"');
    let text: String = chars.by_ref().take_while(|&c| c != '"').collect();
    assert!(!text.contains('\\'), "this reader knows no escapes: {text}");
    text
}

fn digits(chars: &mut Peekable<Chars<'_>>) -> u64 {
    let digits: String = std::iter::from_fn(|| chars.next_if(char::is_ascii_digit)).collect();
    digits.parse().expect("a number of 64 bits")
}

fn take(chars: &mut Peekable<Chars<'_>>, wanted: char) {
    assert_eq!(peek(chars), Some(wanted));
    chars.next();
}

fn peek(chars: &mut Peekable<Chars<'_>>) -> Option<char> {
    while chars.next_if(|c| c.is_whitespace()).is_some() {}
    chars.peek().copied()
}
