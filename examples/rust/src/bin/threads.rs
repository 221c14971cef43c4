//! Actors from plain threads, without an async runtime: tellers move money between accounts of one
//! bank.
//!
//! The bank is one actor, so that its state needs no lock and a transfer is never seen half done.
//! The tellers are threads of the program: they ask and wait. A transfer that the account has no
//! cover for is an answer, not a failure of the actor.
//!
//! Run it with `cargo run -p tidewire-examples --bin threads`.

use std::error::Error;
use std::thread;
use std::time::Duration;

use tidewire_engine::{Actor, Context, Engine, Fault, Reply, Stop};

const ACCOUNTS: usize = 10;
const TELLERS: usize = 4;
const TRANSFERS: usize = 5_000;
const AT_FIRST: u64 = 1_000;
const SECOND: Duration = Duration::from_secs(1);

struct Transfer {
    from: usize,
    to: usize,
    amount: u64,
}

enum Ask {
    Move(Transfer, Reply<Result<u64, NoCover>>),
    Total(Reply<u64>),
    /// Told by a timer; it can't be cloned, as `Reply` can't.
    Look(Reply<u64>),
}

#[derive(Debug)]
struct NoCover {
    balance: u64,
}

struct Bank {
    balances: Vec<u64>,
}

impl Actor for Bank {
    type Message = Ask;

    fn receive(&mut self, message: Ask, _: &mut Context<'_, Ask>) -> Result<(), Fault> {
        match message {
            Ask::Move(transfer, reply) => {
                reply.send(self.transfer(&transfer));
            }
            Ask::Total(reply) | Ask::Look(reply) => {
                reply.send(self.balances.iter().sum());
            }
        }
        Ok(())
    }
}

impl Bank {
    /// Returns the remaining balance of the account.
    fn transfer(&mut self, transfer: &Transfer) -> Result<u64, NoCover> {
        let balance = self.balances[transfer.from];
        let left = balance.checked_sub(transfer.amount).ok_or(NoCover { balance })?;
        self.balances[transfer.from] = left;
        self.balances[transfer.to] += transfer.amount;
        Ok(left)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let engine = Engine::new()?;
    let bank = engine.spawn(Bank { balances: vec![AT_FIRST; ACCOUNTS] })?;

    // Looks at the total while the tellers work.
    let (say, seen) = std::sync::mpsc::sync_channel(1_000);
    let auditor = engine.every_with(Duration::from_millis(1), &bank, move || {
        let (reply, answer) = Reply::channel();
        // More than the channel holds is not looked at.
        drop(say.try_send(answer));
        Ask::Look(reply)
    });

    let tellers: Vec<_> = (0..TELLERS)
        .map(|teller| {
            let bank = bank.clone();
            thread::spawn(move || {
                let mut refused = 0_u64;
                for number in 0..TRANSFERS {
                    let from = (teller + number) % ACCOUNTS;
                    let transfer =
                        Transfer { from, to: (from + 1 + number % 3) % ACCOUNTS, amount: (number as u64 * 37) % 400 };
                    match bank.ask(|reply| Ask::Move(transfer, reply), 10 * SECOND).wait() {
                        Ok(Ok(_left)) => {}
                        Ok(Err(NoCover { balance })) => refused += u64::from(balance < 400),
                        Err(error) => panic!("the bank did not answer: {error}"),
                    }
                }
                refused
            })
        })
        .collect();
    let refused: u64 = tellers.into_iter().map(|teller| teller.join().expect("a teller does not panic")).sum();
    auditor.cancel();

    let total = bank.ask(Ask::Total, SECOND).wait()?;
    let looks: Vec<u64> = seen.try_iter().map(|answer| answer.wait()).collect::<Result<_, _>>()?;
    println!("{} transfers by {TELLERS} threads, {refused} without cover", TELLERS * TRANSFERS);
    println!("the total is {total}, and was at each of {} looks", looks.len());
    assert_eq!(total, AT_FIRST * ACCOUNTS as u64);
    assert!(looks.iter().all(|look| *look == total), "no transfer is seen half done");

    let report = bank.stop(Stop::drain(SECOND)).wait()?;
    assert!(report.ledger.balances());
    engine.shutdown(SECOND);
    Ok(())
}
