//! Calls of the storage backend, each an operation on its folder.

use bytes::Bytes;
use tidewire_backend::home::{
    Ack, Answer, BucketInfo, BucketSettings, Change, Changes, ConsumerInfo, ConsumerSettings, DeadLetter, Delivery,
    Entry, Expect, Fetch, Grant, HomeError, HomeResult, KeyValue, LeaseInfo, Leases, NewMessage, Page, Purge, Read,
    ScheduleInfo, ScheduleSettings, Settle, Start, StreamInfo, StreamSettings, Streams, Teller, Watch, answer,
};
use tidewire_proto::subject::{Pattern, Subject};

use super::Embedded;
use super::home_thread::{CallContext, closed};

impl Embedded {
    /// Does something that has its answer itself, or at least a teller.
    fn call<T: Send + 'static>(&self, run: impl FnOnce(&mut CallContext<'_>, Teller<T>) + Send + 'static) -> Answer<T> {
        let (teller, answer) = answer();
        let call = Box::new(move |doing: Result<&mut CallContext<'_>, HomeError>| match doing {
            Ok(doing) => run(doing, teller),
            Err(error) => drop(teller.tell(Err(error))),
        });
        if self.shared.call(call) { answer } else { Answer::ready(Err(closed())) }
    }

    /// Changes something: answered after the next sync.
    fn change<T: Send + 'static>(
        &self,
        run: impl FnOnce(&mut CallContext<'_>) -> HomeResult<T> + Send + 'static,
    ) -> Answer<T> {
        self.call(move |doing, teller| {
            let result = run(doing);
            doing.keep(teller, result);
        })
    }

    /// Runs a call that needs no sync of its own.
    fn query<T: Send + 'static>(
        &self,
        run: impl FnOnce(&mut CallContext<'_>) -> HomeResult<T> + Send + 'static,
    ) -> Answer<T> {
        self.call(move |doing, teller| {
            let result = run(doing);
            doing.show(teller, result);
        })
    }
}

impl Streams for Embedded {
    fn create_stream(&self, settings: StreamSettings) -> Answer<StreamInfo> {
        self.change(move |doing| doing.folder.create_stream(settings, doing.now_us))
    }

    fn stream_info(&self, stream: &str) -> Answer<StreamInfo> {
        let stream = stream.to_owned();
        self.query(move |doing| doing.folder.stream_info(&stream))
    }

    fn list_streams(&self) -> Answer<Vec<StreamInfo>> {
        self.query(move |doing| Ok(doing.folder.list_streams()))
    }

    fn delete_stream(&self, stream: &str) -> Answer<()> {
        let stream = stream.to_owned();
        self.change(move |doing| {
            doing.folder.delete_stream(&stream)?;
            doing.waiting.wake_all(&stream);
            Ok(())
        })
    }

    fn purge(&self, stream: &str, purge: Purge) -> Answer<u64> {
        let stream = stream.to_owned();
        self.change(move |doing| doing.folder.purge(&stream, &purge))
    }

    fn publish(&self, stream: &str, messages: Vec<NewMessage>, whole: bool) -> Answer<Vec<HomeResult<Ack>>> {
        let bytes = messages.iter().map(|message| message.payload.len() as u64 + 128).sum();
        if let Err(busy) = self.shared.reserve_intake(bytes) {
            return Answer::ready(Err(busy));
        }
        let (stream, shared) = (stream.to_owned(), std::sync::Arc::clone(&self.shared));
        // Released even if the call never runs.
        let permit = IntakePermit { shared, bytes };
        self.call(move |doing, teller: Teller<Vec<HomeResult<Ack>>>| {
            let result = doing.folder.publish(&stream, &messages, whole, doing.now_us);
            doing.synced.push(Box::new(move |synced| {
                drop(permit);
                drop(teller.tell(synced.and(result)));
            }));
        })
    }

    fn read(&self, stream: &str, read: Read) -> Answer<Page> {
        let stream = stream.to_owned();
        self.call(move |doing, teller| {
            let mut read = read;
            if read.start == Start::New {
                match doing.folder.sequence_of(&stream, Start::New) {
                    Ok(sequence) => read.start = Start::Sequence(sequence),
                    Err(error) => return doing.show(teller, Err(error)),
                }
            }
            doing.waiting.read(stream, read, doing.now_us, teller);
        })
    }

    fn create_schedule(&self, stream: &str, settings: ScheduleSettings) -> Answer<(ScheduleInfo, Change)> {
        let stream = stream.to_owned();
        self.change(move |doing| doing.folder.create_schedule(&stream, settings, doing.wall_us))
    }

    fn list_schedules(&self, stream: &str) -> Answer<Vec<ScheduleInfo>> {
        let stream = stream.to_owned();
        self.query(move |doing| doing.folder.list_schedules(&stream))
    }

    fn cancel_schedule(&self, stream: &str, schedule: &str) -> Answer<bool> {
        let (stream, schedule) = (stream.to_owned(), schedule.to_owned());
        self.change(move |doing| doing.folder.cancel_schedule(&stream, &schedule))
    }

    fn create_consumer(&self, stream: &str, settings: ConsumerSettings) -> Answer<ConsumerInfo> {
        let stream = stream.to_owned();
        self.change(move |doing| doing.folder.create_consumer(&stream, settings, doing.now_us))
    }

    fn consumer_info(&self, stream: &str, consumer: &str) -> Answer<ConsumerInfo> {
        let (stream, consumer) = (stream.to_owned(), consumer.to_owned());
        self.query(move |doing| doing.folder.consumer_info(&stream, &consumer))
    }

    fn list_consumers(&self, stream: &str) -> Answer<Vec<ConsumerInfo>> {
        let stream = stream.to_owned();
        self.query(move |doing| doing.folder.list_consumers(&stream))
    }

    fn delete_consumer(&self, stream: &str, consumer: &str) -> Answer<()> {
        let (stream, consumer) = (stream.to_owned(), consumer.to_owned());
        self.change(move |doing| {
            doing.folder.delete_consumer(&stream, &consumer)?;
            doing.waiting.moved(&stream, &consumer);
            Ok(())
        })
    }

    fn fetch(&self, stream: &str, consumer: &str, fetch: Fetch) -> Answer<Vec<Delivery>> {
        let consumer = (stream.to_owned(), consumer.to_owned());
        self.call(move |doing, teller| doing.waiting.fetch(consumer, fetch, doing.now_us, teller))
    }

    fn settle(&self, stream: &str, consumer: &str, settled: Vec<Settle>) -> Answer<Vec<HomeResult<()>>> {
        self.at_consumer(stream, consumer, move |doing, stream, consumer| {
            doing.folder.settle(stream, consumer, settled, doing.now_us)
        })
    }

    fn pause(&self, stream: &str, consumer: &str, until_us: Option<u64>) -> Answer<()> {
        self.at_consumer(stream, consumer, move |doing, stream, consumer| {
            doing.folder.pause(stream, consumer, Some(until_us.unwrap_or(u64::MAX)))
        })
    }

    fn resume(&self, stream: &str, consumer: &str) -> Answer<()> {
        self.at_consumer(stream, consumer, |doing, stream, consumer| doing.folder.pause(stream, consumer, None))
    }

    fn seek(&self, stream: &str, consumer: &str, start: Start) -> Answer<()> {
        self.at_consumer(stream, consumer, move |doing, stream, consumer| doing.folder.seek(stream, consumer, start))
    }

    fn dead_letters(&self, stream: &str, consumer: &str, from: u64, max: u32) -> Answer<Vec<DeadLetter>> {
        let (stream, consumer) = (stream.to_owned(), consumer.to_owned());
        self.query(move |doing| doing.folder.dead_letters(&stream, &consumer, (from, max), doing.now_us))
    }

    fn requeue(&self, stream: &str, consumer: &str, sequences: Vec<u64>) -> Answer<u64> {
        self.at_consumer(stream, consumer, move |doing, stream, consumer| {
            doing.folder.end_dead(stream, consumer, &sequences, true, doing.now_us)
        })
    }

    fn drop_dead(&self, stream: &str, consumer: &str, sequences: Vec<u64>) -> Answer<u64> {
        self.at_consumer(stream, consumer, move |doing, stream, consumer| {
            doing.folder.end_dead(stream, consumer, &sequences, false, doing.now_us)
        })
    }
}

impl Embedded {
    /// Changes a consumer: something may be ready for those who fetch from it then.
    fn at_consumer<T: Send + 'static>(
        &self,
        stream: &str,
        consumer: &str,
        run: impl FnOnce(&mut CallContext<'_>, &str, &str) -> HomeResult<T> + Send + 'static,
    ) -> Answer<T> {
        let (stream, consumer) = (stream.to_owned(), consumer.to_owned());
        self.change(move |doing| {
            let result = run(doing, &stream, &consumer);
            doing.waiting.moved(&stream, &consumer);
            result
        })
    }
}

impl KeyValue for Embedded {
    fn create_bucket(&self, settings: BucketSettings) -> Answer<()> {
        self.change(move |doing| doing.folder.create_bucket(settings))
    }

    fn bucket_info(&self, bucket: &str) -> Answer<BucketInfo> {
        let bucket = bucket.to_owned();
        self.query(move |doing| doing.folder.bucket_info(&bucket))
    }

    fn list_buckets(&self) -> Answer<Vec<BucketInfo>> {
        self.query(move |doing| Ok(doing.folder.list_buckets()))
    }

    fn delete_bucket(&self, bucket: &str) -> Answer<()> {
        let bucket = bucket.to_owned();
        self.change(move |doing| {
            doing.folder.delete_bucket(&bucket)?;
            doing.waiting.wake_all(&bucket);
            Ok(())
        })
    }

    fn put(&self, bucket: &str, key: Subject, value: Bytes, expect: Expect, ttl_us: Option<u64>) -> Answer<u64> {
        let bucket = bucket.to_owned();
        self.change(move |doing| {
            let revision = doing.folder.put(&bucket, &key, value, (expect, ttl_us), doing.now_us)?;
            doing.waiting.changed(&bucket);
            Ok(revision)
        })
    }

    fn get(&self, bucket: &str, key: Subject, revision: Option<u64>) -> Answer<Option<Entry>> {
        let bucket = bucket.to_owned();
        self.query(move |doing| doing.folder.get(&bucket, &key, revision, doing.now_us))
    }

    fn delete(&self, bucket: &str, key: Subject, expect: Expect, purge: bool) -> Answer<u64> {
        let bucket = bucket.to_owned();
        self.change(move |doing| {
            let revision = doing.folder.delete(&bucket, &key, expect, purge, doing.now_us)?;
            doing.waiting.changed(&bucket);
            Ok(revision)
        })
    }

    fn keys(&self, bucket: &str, filter: Pattern, after: Option<Subject>, max: u32) -> Answer<Vec<Subject>> {
        let bucket = bucket.to_owned();
        self.query(move |doing| doing.folder.keys(&bucket, &filter, after.as_ref(), max, doing.now_us))
    }

    fn history(&self, bucket: &str, key: Subject) -> Answer<Vec<Entry>> {
        let bucket = bucket.to_owned();
        self.query(move |doing| doing.folder.history(&bucket, &key))
    }

    fn watch(&self, bucket: &str, watch: Watch) -> Answer<Changes> {
        let bucket = bucket.to_owned();
        self.call(move |doing, teller| doing.waiting.watch(bucket, watch, doing.now_us, teller))
    }
}

impl Leases for Embedded {
    fn acquire(&self, name: &str, holder: &str, ttl_us: u64, wait_us: u64) -> Answer<Grant> {
        let (name, holder) = (name.to_owned(), holder.to_owned());
        self.call(move |doing, teller| {
            let ticket = doing.waiting.ticket();
            match doing.folder.acquire((&name, &holder), (ttl_us, wait_us), ticket, doing.now_us) {
                Ok(Some((_, result))) => doing.grant(name, teller, result),
                Ok(None) => doing.waiting.lease(ticket, name, teller),
                Err(error) => doing.show(teller, Err(error)),
            }
        })
    }

    fn renew(&self, name: &str, fence: u64) -> Answer<Grant> {
        let name = name.to_owned();
        self.query(move |doing| doing.folder.renew(&name, fence, doing.now_us))
    }

    fn release(&self, name: &str, fence: u64) -> Answer<bool> {
        let name = name.to_owned();
        self.change(move |doing| Ok(doing.folder.release(&name, fence, doing.now_us)))
    }

    fn lease_info(&self, name: &str) -> Answer<Option<LeaseInfo>> {
        let name = name.to_owned();
        self.query(move |doing| Ok(doing.folder.lease_info(&name, doing.now_us)))
    }

    fn list_leases(&self) -> Answer<Vec<LeaseInfo>> {
        self.query(move |doing| Ok(doing.folder.list_leases(doing.now_us)))
    }
}

/// Capacity of the intake, released when the call has ended.
struct IntakePermit {
    shared: std::sync::Arc<super::home_thread::Shared>,
    bytes: u64,
}

impl Drop for IntakePermit {
    fn drop(&mut self) {
        self.shared.release_intake(self.bytes);
    }
}
