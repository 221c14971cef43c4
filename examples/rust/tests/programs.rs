//! The example programs run, and print their results. Each program also checks its own results.

use std::process::Command;

fn said(program: &str) -> String {
    let output = Command::new(program).output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{program}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

#[test]
fn the_pipeline_counts_each_line_once() {
    let text = said(env!("CARGO_BIN_EXE_pipeline"));
    assert!(text.contains("100 lines could not be parsed") && text.contains("has no status"), "{text}");
}

#[test]
fn threads_share_a_bank() {
    assert!(said(env!("CARGO_BIN_EXE_threads")).contains("the total is 10000"));
}

#[test]
fn a_web_service_calls_a_service() {
    assert!(said(env!("CARGO_BIN_EXE_web")).contains("/quotes/GOLD"));
}

#[test]
fn orders_are_billed_once() {
    let text = said(env!("CARGO_BIN_EXE_orders"));
    assert!(text.contains("1 dead letter") && text.contains("2000 orders are billed once"), "{text}");
}
