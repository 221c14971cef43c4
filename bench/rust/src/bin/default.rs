//! One workload for one contender, with the allocator of the platform.

fn main() -> std::process::ExitCode {
    engine_bench::main("system")
}
