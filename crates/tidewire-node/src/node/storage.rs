//! Streams, buckets and leases of a node.

use std::sync::Arc;
use std::time::Duration;

use tidewire_backend::home::Home;
use tidewire_engine::raw::clock;

use crate::delay::until;
use crate::node::core::Node;
use crate::pending::Pending;
use crate::streams::conventions::answered;
use crate::streams::{
    Bucket, BucketInfo, BucketOptions, HubHome, Lease, LeaseOptions, Reads, Stream, StreamInfo, StreamOptions, acquire,
    own_or_hub,
};

/// Streams, buckets and leases. They live in the storage backend of the node
/// ([`NodeOptions::home`](crate::NodeOptions::home), or `data` with the feature `embedded`), else
/// at the hub that it has joined.
impl Node {
    /// Finds a stream with any settings.
    ///
    /// # Errors
    /// Awaiting it fails with `not_found` if there is none, and with `unauthorized` if the token
    /// does not allow it. It fails with `home_unavailable` if the hub has no storage backend or its
    /// link is lost.
    ///
    /// # Cancel safety
    /// Nothing is lost if it is dropped. The same holds for all calls that only read.
    pub fn stream(&self, name: &str) -> Pending<Stream> {
        let (reads, name) = (self.reads(), name.to_owned());
        let info = reads.home.stream_info(&name);
        Pending::new(async move {
            info.await?;
            Ok(Stream::new(reads, &name))
        })
    }

    /// Creates a stream, or finds it with the same settings. Its name has letters, digits, `_` and
    /// `-`, at most 64.
    ///
    /// # Errors
    /// As for [`stream`](Node::stream). Also `settings_differ` if the stream exists with other
    /// settings; the error names the first one. `invalid_argument` if a setting is not allowed, and
    /// `unsupported` if the storage backend lacks a capability.
    ///
    /// # Cancel safety
    /// If it is dropped, the stream may have been made.
    pub fn stream_with(&self, name: &str, options: StreamOptions) -> Pending<Stream> {
        let settings = match options.settings(name) {
            Ok(settings) => settings,
            Err(error) => return Pending::failed(error),
        };
        let (reads, name) = (self.reads(), name.to_owned());
        let creation = reads.home.create_stream(settings);
        Pending::new(async move {
            creation.await?;
            Ok(Stream::new(reads, &name))
        })
    }

    fn reads(&self) -> Reads {
        Reads::new(self.own_or_hub(), &self.core().runner)
    }

    /// The state of every stream, by name.
    ///
    /// # Errors
    /// Awaiting it fails with `home_unavailable` if the storage backend cannot be reached.
    ///
    /// # Cancel safety
    /// Nothing is lost if it is dropped.
    pub fn streams(&self) -> Pending<Vec<StreamInfo>> {
        answered(self.own_or_hub().list_streams())
    }

    /// Finds a key-value bucket with any settings.
    ///
    /// # Errors
    /// As for [`stream`](Node::stream).
    ///
    /// # Cancel safety
    /// Nothing is lost if it is dropped.
    pub fn bucket(&self, name: &str) -> Pending<Bucket> {
        let (reads, name) = (self.reads(), name.to_owned());
        let info = reads.home.bucket_info(&name);
        Pending::new(async move {
            info.await?;
            Ok(Bucket::new(reads, &name))
        })
    }

    /// Makes a key-value bucket, or finds that it is there with the same settings.
    ///
    /// # Errors
    /// As for [`stream_with`](Node::stream_with).
    ///
    /// # Cancel safety
    /// If it is dropped, the bucket may have been made.
    pub fn bucket_with(&self, name: &str, options: BucketOptions) -> Pending<Bucket> {
        let reads = self.reads();
        let (creation, name) = (reads.home.create_bucket(options.settings(name)), name.to_owned());
        Pending::new(async move {
            creation.await?;
            Ok(Bucket::new(reads, &name))
        })
    }

    /// The state of every bucket, by name.
    ///
    /// # Errors
    /// Awaiting it fails with `home_unavailable` if the storage backend cannot be reached.
    ///
    /// # Cancel safety
    /// Nothing is lost if it is dropped.
    pub fn buckets(&self) -> Pending<Vec<BucketInfo>> {
        answered(self.own_or_hub().list_buckets())
    }

    /// Acquires a lease of 5 seconds, which is renewed until it is dropped, and waits as long as
    /// needed; see [`lease_with`](Node::lease_with).
    ///
    /// # Errors
    /// As for `lease_with`.
    ///
    /// # Cancel safety
    /// If it is dropped, the lease is not held: a granted lease is released, at the latest by its
    /// TTL.
    pub fn lease(&self, name: &str) -> Pending<Lease> {
        self.lease_with(name, LeaseOptions::default())
    }

    /// Acquires a lease. A name is a subject's text, such as `orders.matching`.
    ///
    /// # Errors
    /// Awaiting it fails with `lease_held` if another holder kept it for the `timeout`. It fails
    /// with `invalid_argument` if an option is not allowed, and with `home_unavailable` if the
    /// storage backend cannot be reached.
    ///
    /// # Cancel safety
    /// As for [`lease`](Node::lease).
    pub fn lease_with(&self, name: &str, options: LeaseOptions) -> Pending<Lease> {
        acquire(self.core(), name, options)
    }

    /// The storage backend of streams, buckets and leases, for programs that move batches
    /// themselves. The storage backend of a hub reports missing capabilities on use.
    ///
    /// # Errors
    /// Awaiting it fails with `home_unavailable` if the hub has no storage backend, or its link is
    /// lost.
    ///
    /// # Cancel safety
    /// Nothing is lost if it is dropped.
    pub fn home(&self) -> Pending<Arc<dyn Home>> {
        if let Some(home) = &self.core().home {
            let home = Arc::clone(home);
            return Pending::new(async move { Ok(home) });
        }
        let hub = HubHome::new(self.core());
        Pending::new(async move { Ok(Arc::new(hub.with_capabilities().await?) as Arc<dyn Home>) })
    }

    /// The storage backend of the hub, without a look at its capabilities: it refuses what it
    /// lacks. Publications of one such handle are stored in their order.
    pub fn hub_home(&self) -> Arc<dyn Home> {
        Arc::new(HubHome::new(self.core()))
    }

    /// Waits until each fetched event and lease whose caller has left is back at the hub. False
    /// after `timeout`.
    pub fn returned(&self, timeout: Duration) -> impl Future<Output = bool> + Send + use<> {
        let runner = Arc::clone(&self.core().runner);
        async move { until(&runner, clock::now() + timeout, || runner.has_returned()).await }
    }

    fn own_or_hub(&self) -> Arc<dyn Home> {
        own_or_hub(self.core())
    }
}
