//! Names of tools: no two methods have the same one.

/// Longest name that models take.
const LETTERS: usize = 64;

/// The name of a tool: `SERVICE-METHOD`. Models take letters, digits, `_` and `-` alone, and a
/// method does not begin with `_`: `-_` stands for `-` in a name, `-__HEX_` for another character.
pub(super) fn tool_name(service: &str, method: &str) -> String {
    let name = format!("{}-{}", escaped(service), escaped(method));
    if name.len() <= LETTERS {
        return name;
    }
    // FNV-1a: the same in all versions.
    let hash = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{}-___{hash:016x}", &name[..LETTERS - 20])
}

fn escaped(name: &str) -> String {
    let mut result = String::new();
    let mut letters = name.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' => result.push(letter),
            '-' if letters.peek() != Some(&'_') => result.push_str("-_"),
            other => result.push_str(&format!("-__{:x}_", u32::from(other))),
        }
    }
    result
}
