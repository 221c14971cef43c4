//! HTTP upgrade to a WebSocket, on both sides of a link.

use std::io::{self, Read as _, Write as _};

use tungstenite::handshake::client::{Response, generate_key};
use tungstenite::handshake::derive_accept_key;
use tungstenite::handshake::machine::TryParse;
use tungstenite::handshake::server::{Request, Response as Answer, create_response, write_response};
use tungstenite::http::{HeaderMap, HeaderValue, StatusCode};
use tungstenite::protocol::Role;

use crate::carrier::Carrier;
use crate::websocket::WebSocketIo;

/// The WebSocket sub-protocol of links.
const PROTOCOL: &str = "tidewire.v1";
const PROTOCOL_HEADER: &str = "Sec-WebSocket-Protocol";
const JOIN: &str = "this is a Tidewire hub, join it with a WebSocket that has the sub-protocol tidewire.v1";
/// The most bytes of an HTTP request or response.
const HEAD_BYTES: usize = 16 * 1024;

/// Turns an HTTP request into a WebSocket, or refuses the request with an HTTP error.
///
/// Any path and any Origin are accepted: a token keeps the pages of a browser out.
///
/// # Errors
/// `InvalidData` if the request does not ask for a WebSocket with our protocol.
pub async fn accept(mut carrier: Carrier, frame_max: usize) -> io::Result<WebSocketIo> {
    let answered = match read_head::<Request>(&mut carrier).await {
        Ok((request, rest)) => answer(&request).map(|response| (response, rest)),
        Err(Unread::Io(error)) => return Err(error),
        Err(Unread::TooLong) => Err((
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            "the head of the request is longer than 16 KiB".to_owned(),
        )),
        Err(Unread::NotHttp(text)) => Err((StatusCode::BAD_REQUEST, format!("{text}: {JOIN}"))),
    };
    match answered {
        Ok((response, rest)) => {
            write_all(&mut carrier, &response).await?;
            Ok(WebSocketIo::new(carrier, rest, Role::Server, frame_max))
        }
        Err((status, text)) => {
            write_all(&mut carrier, &no(status, &text)).await?;
            Err(invalid(format!("it is no WebSocket of a node: {text}")))
        }
    }
}

/// Asks a hub for a WebSocket.
///
/// # Errors
/// `InvalidData` if what answers is no hub.
pub async fn join(mut carrier: Carrier, host: &str, path: &str, frame_max: usize) -> io::Result<WebSocketIo> {
    let key = generate_key();
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n{PROTOCOL_HEADER}: {PROTOCOL}\r\n\r\n"
    );
    write_all(&mut carrier, request.as_bytes()).await?;
    let (response, rest) = match read_head::<Response>(&mut carrier).await {
        Ok(read) => read,
        Err(Unread::Io(error)) => return Err(error),
        Err(Unread::TooLong) => return Err(invalid("its HTTP answer is longer than 16 KiB".to_owned())),
        Err(Unread::NotHttp(text)) => return Err(invalid(format!("it does not speak WebSocket: {text}"))),
    };
    check(&response, &key).map_err(invalid)?;
    Ok(WebSocketIo::new(carrier, rest, Role::Client, frame_max))
}

fn answer(request: &Request) -> Result<Vec<u8>, (StatusCode, String)> {
    let mut bytes = Vec::new();
    let written = write_response(&mut bytes, &websocket_answer(request)?);
    written.map(|()| bytes).map_err(|error| (StatusCode::BAD_REQUEST, error.to_string()))
}

/// The response that opens the WebSocket of a node.
///
/// # Errors
/// The status of another response, and its text.
pub fn websocket_answer(request: &Request) -> Result<Answer, (StatusCode, String)> {
    let mut response =
        create_response(request).map_err(|error| (StatusCode::UPGRADE_REQUIRED, format!("{error}: {JOIN}")))?;
    if !offers(request.headers()) {
        return Err((StatusCode::BAD_REQUEST, format!("{PROTOCOL_HEADER} must offer {PROTOCOL}: {JOIN}")));
    }
    response.headers_mut().insert(PROTOCOL_HEADER, HeaderValue::from_static(PROTOCOL));
    Ok(response)
}

fn offers(headers: &HeaderMap) -> bool {
    let offered = headers.get_all(PROTOCOL_HEADER).into_iter().filter_map(|value| value.to_str().ok());
    offered.flat_map(|value| value.split(',')).any(|name| name.trim() == PROTOCOL)
}

fn no(status: StatusCode, text: &str) -> Vec<u8> {
    let length = text.len() + 1;
    let head = format!(
        "HTTP/1.1 {status}\r\nConnection: close\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Content-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\n\r\n{text}\n"
    );
    head.into_bytes()
}

fn check(response: &Response, key: &str) -> Result<(), String> {
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(format!(
            "it answers {}: check the path of the URL, and whether a hub listens there",
            response.status()
        ));
    }
    let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if header("Sec-WebSocket-Accept") != derive_accept_key(key.as_bytes()) {
        return Err("its answer does not fit the request: something between here and the hub does not speak WebSocket"
            .to_owned());
    }
    if header(PROTOCOL_HEADER) != PROTOCOL {
        return Err(format!("it does not speak {PROTOCOL}: check whether a hub listens there"));
    }
    Ok(())
}

#[derive(derive_more::From)]
enum Unread {
    #[from]
    Io(io::Error),
    TooLong,
    NotHttp(String),
}

/// Reads the head of a request or response, and what came after it.
async fn read_head<T: TryParse>(carrier: &mut Carrier) -> Result<(T, Vec<u8>), Unread> {
    let mut bytes = vec![0; HEAD_BYTES];
    let mut length = 0;
    loop {
        length += match read_some(carrier, &mut bytes[length..]).await? {
            0 => {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "it closed the connection during the handshake",
                )
                .into());
            }
            count => count,
        };
        match T::try_parse(&bytes[..length]) {
            Ok(Some((head, parsed))) => return Ok((parsed, bytes[head..length].to_vec())),
            Ok(None) if length == HEAD_BYTES => return Err(Unread::TooLong),
            Ok(None) => {}
            Err(error) => return Err(Unread::NotHttp(error.to_string())),
        }
    }
}

async fn read_some(carrier: &mut Carrier, into: &mut [u8]) -> io::Result<usize> {
    loop {
        match carrier.read(into) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => carrier.stream().readable().await?,
            other => return other,
        }
    }
}

async fn write_all(carrier: &mut Carrier, mut bytes: &[u8]) -> io::Result<()> {
    loop {
        let written = if bytes.is_empty() { carrier.flush().map(|()| 0) } else { carrier.write(bytes) };
        match written {
            Ok(_) if bytes.is_empty() => return Ok(()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => carrier.stream().writable().await?,
            Err(error) => return Err(error),
        }
    }
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}
