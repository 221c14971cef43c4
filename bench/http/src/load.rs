//! The load: connections that are kept, each with one request at a time.

use std::io;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

const WARMUP: Duration = Duration::from_millis(500);

/// Prints requests each second and times of answers.
pub async fn run(place: &str, path: &str, connections: usize, seconds: f64) -> io::Result<()> {
    let value = json!({ "text": "x".repeat(160), "numbers": [1, 2.5, -3], "flag": true, "nothing": null });
    let body = json!([value]).to_string();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {place}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let begin = Instant::now() + WARMUP;
    let end = begin + Duration::from_secs_f64(seconds);
    let tasks: Vec<_> = (0..connections)
        .map(|_| tokio::spawn(one(place.to_owned(), request.clone().into_bytes(), begin, end)))
        .collect();
    let mut times = Vec::new();
    for task in tasks {
        times.append(&mut task.await.map_err(io::Error::other)??);
    }
    times.sort_unstable();
    let at = |part: f64| times.get(((times.len() as f64 - 1.0) * part) as usize).map_or(0.0, |us| *us as f64 / 1_000.0);
    let rate = times.len() as f64 / seconds;
    println!("{}", json!({ "figures": { "rate": rate, "p50_ms": at(0.5), "p99_ms": at(0.99) } }));
    Ok(())
}

async fn one(place: String, request: Vec<u8>, begin: Instant, end: Instant) -> io::Result<Vec<u64>> {
    let stream = TcpStream::connect(place).await?;
    stream.set_nodelay(true)?;
    let mut stream = BufReader::with_capacity(16_384, stream);
    let (mut times, mut line, mut body) = (Vec::new(), String::new(), Vec::new());
    loop {
        let sent = Instant::now();
        if sent >= end {
            return Ok(times);
        }
        stream.get_mut().write_all(&request).await?;
        let mut length = 0;
        line.clear();
        stream.read_line(&mut line).await?;
        if !line.contains(" 200 ") {
            return Err(io::Error::other(line));
        }
        loop {
            line.clear();
            stream.read_line(&mut line).await?;
            let head = line.trim_end().to_ascii_lowercase();
            if head.is_empty() {
                break;
            }
            if let Some(text) = head.strip_prefix("content-length: ") {
                length = text.parse().map_err(io::Error::other)?;
            }
        }
        body.resize(length, 0);
        stream.read_exact(&mut body).await?;
        if sent >= begin {
            times.push(sent.elapsed().as_micros() as u64);
        }
    }
}
