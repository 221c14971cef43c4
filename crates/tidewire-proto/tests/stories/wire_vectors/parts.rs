//! From a frame to its parts as the vectors name them, and from the parts to a frame.

use tidewire_proto::wire::{
    CallHead, Fields, FieldsWriter, Flags, Frame, Hello, Kind, PublishHead, SubscribeHead, Welcome, WireError,
    read_u16, read_u32, write,
};

use super::json::Json;

const LANES: [&str; 4] = ["urgent", "high", "normal", "low"];

/// The parts of a frame, without its name and its hex.
pub fn parts_of(frame: &Frame<'_>) -> Json {
    let mut parts = vec![
        ("kind", text(frame.kind.name())),
        ("lane", text(LANES[frame.flags.lane()])),
        ("flags", Json::List(flags_of(frame.flags).into_iter().map(text).collect())),
        ("id", text(&frame.id.to_string())),
        ("head", head_of(frame).unwrap()),
    ];
    if has_fields(frame.kind) {
        parts.push(("payload_fields", fields_of(Fields::parse("payload", frame.payload).unwrap())));
    }
    parts.push(("payload", hex(frame.payload)));
    object(parts)
}

/// The frame that the parts of a vector make.
pub fn frame_of(parts: &Json) -> Result<Vec<u8>, WireError> {
    let name = parts.at("kind").text();
    let kind = *Kind::ALL.iter().find(|kind| kind.name() == name).expect("a kind of the table");
    let payload = match has_fields(kind) {
        true => fields_bytes(parts.at("payload_fields")),
        false => parts.at("payload").hex(),
    };
    let (mut out, head) = (Vec::new(), parts.at("head"));
    write(&mut out, kind, flags_from(parts), parts.at("id").number(), |out| put_head(kind, head, out), &payload)?;
    Ok(out)
}

fn has_fields(kind: Kind) -> bool {
    [Kind::Hello, Kind::Welcome, Kind::Node, Kind::Subscribe].contains(&kind)
}

fn head_of(frame: &Frame<'_>) -> Result<Json, WireError> {
    let (name, head) = (frame.kind.name(), frame.head);
    Ok(object(match frame.kind {
        Kind::Hello => {
            let hello = Hello::parse(frame)?;
            vec![("oldest", number(hello.oldest)), ("newest", number(hello.newest))]
        }
        Kind::Welcome => vec![("version", number(Welcome::parse(frame)?.version))],
        Kind::Error | Kind::Fail => vec![("number", number(read_u16(name, head)?))],
        Kind::Node => vec![("number", number(read_u32(name, head)?))],
        Kind::Credit => vec![("items", number(read_u32(name, head)?))],
        Kind::Window => vec![("bytes", number(read_u32(name, head)?))],
        Kind::Alive => vec![("blocked_ms", number(read_u32(name, head)?))],
        Kind::Subscribe => {
            let head = SubscribeHead::parse(head)?;
            vec![("queue", text(head.queue)), ("pattern", text(head.pattern))]
        }
        Kind::Publish => publish_parts(&PublishHead::parse(head)?),
        Kind::Call => call_parts(&CallHead::parse(head)?),
        _ => Vec::new(),
    }))
}

fn publish_parts(head: &PublishHead<'_>) -> Vec<(&'static str, Json)> {
    vec![
        ("origin", number(head.origin)),
        ("to", text(&head.to.to_string())),
        ("subject", text(head.subject)),
        ("fields", fields_of(head.fields)),
    ]
}

fn call_parts(head: &CallHead<'_>) -> Vec<(&'static str, Json)> {
    vec![
        ("origin", number(head.origin)),
        ("to", text(&head.to.to_string())),
        ("deadline_ms", number(head.deadline_ms)),
        ("choice", number(head.choice)),
        ("credit", number(head.credit)),
        ("subject", text(head.subject)),
        ("fields", fields_of(head.fields)),
    ]
}

fn put_head(kind: Kind, head: &Json, out: &mut Vec<u8>) -> Result<(), WireError> {
    match kind {
        Kind::Hello => Hello::put(head.at("oldest").number(), head.at("newest").number(), out),
        Kind::Welcome => put(out, &head.at("version").number::<u16>().to_le_bytes()),
        Kind::Error | Kind::Fail => put(out, &head.at("number").number::<u16>().to_le_bytes()),
        Kind::Node => put(out, &head.at("number").number::<u32>().to_le_bytes()),
        Kind::Credit => put(out, &head.at("items").number::<u32>().to_le_bytes()),
        Kind::Window => put(out, &head.at("bytes").number::<u32>().to_le_bytes()),
        Kind::Alive => put(out, &head.at("blocked_ms").number::<u32>().to_le_bytes()),
        Kind::Subscribe => {
            SubscribeHead { queue: head.at("queue").text(), pattern: head.at("pattern").text() }.put(out)
        }
        Kind::Publish => put_publish(head, out),
        Kind::Call => put_call(head, out),
        _ => Ok(()),
    }
}

fn put_publish(head: &Json, out: &mut Vec<u8>) -> Result<(), WireError> {
    let fields = fields_bytes(head.at("fields"));
    let (origin, to, subject) = (head.at("origin").number(), head.at("to").number(), head.at("subject").text());
    PublishHead { origin, to, subject, fields: Fields::parse("PUBLISH", &fields)? }.put(out)
}

fn put_call(head: &Json, out: &mut Vec<u8>) -> Result<(), WireError> {
    let fields = fields_bytes(head.at("fields"));
    let call = CallHead {
        origin: head.at("origin").number(),
        to: head.at("to").number(),
        deadline_ms: head.at("deadline_ms").number(),
        choice: head.at("choice").number(),
        credit: head.at("credit").number(),
        subject: head.at("subject").text(),
        fields: Fields::parse("CALL", &fields)?,
    };
    call.put(out)
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) -> Result<(), WireError> {
    out.extend_from_slice(bytes);
    Ok(())
}

fn flags_of(flags: Flags) -> Vec<&'static str> {
    let all = [flags.more(), flags.answer(), flags.compressed(), flags.again(), flags.placed()];
    let names = ["MORE", "ANSWER", "COMPRESSED", "AGAIN", "PLACED"];
    names.into_iter().zip(all).filter_map(|(name, on)| on.then_some(name)).collect()
}

fn flags_from(parts: &Json) -> Flags {
    let lane = LANES.iter().position(|lane| *lane == parts.at("lane").text()).expect("a lane");
    let flags = Flags::URGENT.in_lane(lane as u8);
    parts.at("flags").list().iter().fold(flags, |flags, flag| match flag.text() {
        "MORE" => flags.with_more(true),
        "ANSWER" => flags.with_answer(true),
        "COMPRESSED" => flags.with_compressed(true),
        "AGAIN" => flags.with_again(true),
        "PLACED" => flags.with_placed(true),
        other => panic!("no flag: {other}"),
    })
}

fn fields_of(fields: Fields<'_>) -> Json {
    Json::List(fields.iter().map(|(name, value)| Json::List(vec![text(name), hex(value)])).collect())
}

fn fields_bytes(fields: &Json) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = FieldsWriter::new(&mut out);
    for field in fields.list() {
        writer.add(field.list()[0].text(), &field.list()[1].hex()).unwrap();
    }
    out
}

fn object(entries: Vec<(&str, Json)>) -> Json {
    Json::Object(entries.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

fn text(text: &str) -> Json {
    Json::Text(text.to_owned())
}

fn number(number: impl Into<u64>) -> Json {
    Json::Number(number.into())
}

fn hex(bytes: &[u8]) -> Json {
    Json::Text(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
