//! Static files: a folder that is read once, when the gateway starts, and served from memory.
//!
//! A request is looked up among the names that were found, and never opens a file: no path leads
//! out of the folder.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, HeaderValue, LOCATION};
use tidewire_node::Error;

use crate::answer::{Answer, Body, answer, nothing};

/// File that answers a request for a folder.
const INDEX: &str = "index.html";

/// The files of a folder and of those below it, by their paths with slashes.
#[derive(Default)]
pub(crate) struct Files(BTreeMap<String, File>);

struct File {
    media_type: &'static str,
    bytes: Bytes,
}

impl Files {
    /// Reads a folder: at most so many bytes of names and contents. Names that begin with a dot are
    /// left out, a symbolic link is refused.
    pub fn read(folder: &Path, most: usize) -> Result<Self, Error> {
        let (mut found, mut left) = (Self::default(), most);
        let mut folders = vec![(folder.to_owned(), String::new())];
        while let Some((folder, within)) = folders.pop() {
            for entry in fs::read_dir(&folder).map_err(|error| unreadable(&folder, &error))? {
                let entry = entry.map_err(|error| unreadable(&folder, &error))?;
                let path = entry.path();
                let kind = entry.file_type().map_err(|error| unreadable(&path, &error))?;
                let name =
                    entry.file_name().into_string().map_err(|_| wrong(&path, "its name is not UTF-8: rename it"))?;
                if name.starts_with('.') {
                    continue;
                }
                let name = format!("{within}{name}");
                if kind.is_dir() {
                    folders.push((path, format!("{name}/")));
                } else if kind.is_file() {
                    let bytes = content(&path, &mut left, name.len(), most)?;
                    found.0.insert(name, File { media_type: media_type(&path), bytes });
                } else {
                    return Err(wrong(&path, "it is no file and no folder: put a copy of what it names there"));
                }
            }
        }
        Ok(found)
    }

    /// The answer for the parts of a path below `root`, decoded; none if there is no such file.
    pub fn answer(&self, root: &'static str, parts: &[String]) -> Option<Answer> {
        if parts.is_empty() {
            return Some(moved(root));
        }
        // A part with a slash of its own is the name of no file.
        let mut path = parts.iter().all(|part| !part.contains('/')).then(|| parts.join("/"))?;
        if path.is_empty() || path.ends_with('/') {
            path.push_str(INDEX);
        }
        let file = self.0.get(&path)?;
        let mut answer = answer(StatusCode::OK, file.media_type, Body::whole(file.bytes.clone()));
        answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        Some(answer)
    }
}

fn moved(place: &'static str) -> Answer {
    let mut answer = nothing(StatusCode::PERMANENT_REDIRECT);
    answer.headers_mut().insert(LOCATION, HeaderValue::from_static(place));
    answer
}

fn content(path: &Path, left: &mut usize, name: usize, most: usize) -> Result<Bytes, Error> {
    let length = fs::metadata(path).map_err(|error| unreadable(path, &error))?.len();
    let remaining = left.checked_sub(name).filter(|remaining| length <= *remaining as u64);
    let Some(remaining) = remaining else {
        return Err(wrong(path, &format!("with it there are more than http_files_bytes={most}: serve fewer files")));
    };
    let bytes = fs::read(path).map_err(|error| unreadable(path, &error))?;
    *left = remaining.saturating_sub(bytes.len());
    Ok(bytes.into())
}

fn unreadable(path: &Path, error: &std::io::Error) -> Error {
    wrong(path, &format!("it can't be read: {error}"))
}

fn wrong(path: &Path, text: &str) -> Error {
    Error::invalid(format!("files: {}: {text}", PathBuf::from(path).display()))
}

fn media_type(path: &Path) -> &'static str {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    match ending.to_ascii_lowercase().as_str() {
        "html" | "htm" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "json" | "map" => "application/json",
        "txt" | "md" => "text/plain; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "webp" => "image/webp",
        "ico" => "image/vnd.microsoft.icon",
        "woff2" => "font/woff2",
        "wasm" => "application/wasm",
        _ => "application/octet-stream",
    }
}
