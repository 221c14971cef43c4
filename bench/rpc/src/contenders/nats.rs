//! async-nats, through the nats-server that the Python program starts.

use std::sync::Arc;

use async_nats::{Client, ConnectOptions};
use bytes::Bytes;
use futures::StreamExt;

use super::no_hub;
use crate::Fault;
use crate::roles::{Options, Role, Service, announce, call};
use crate::workloads::Link;

/// More than a stream has, as messages above it are dropped.
const SUBSCRIPTION_MESSAGES: usize = 4_000_000;

pub async fn run(options: &Options) -> Result<(), Fault> {
    match options.role {
        Role::Hub => no_hub(),
        Role::Crowd => crowd(&options.url, options.count).await,
        Role::Service => serve(&options.url).await,
        Role::Caller => call(Caller(connect(&options.url).await?), options).await,
    }
}

async fn connect(url: &str) -> Result<Client, Fault> {
    Ok(ConnectOptions::new().subscription_capacity(SUBSCRIPTION_MESSAGES).connect(url).await?)
}

async fn serve(url: &str) -> Result<(), Fault> {
    let client = connect(url).await?;
    let service = Arc::new(Service::default());
    let mut requests = client.subscribe("echo").await?;
    let mut messages = client.subscribe("take").await?;
    client.flush().await?;
    let (answering, taking) = (client.clone(), service.clone());
    tokio::spawn(async move {
        while let Some(request) = requests.next().await {
            if let Some(reply) = request.reply {
                answering.publish(reply, service.echo(request.payload)).await?;
            }
        }
        Ok::<_, Fault>(())
    });
    tokio::spawn(async move {
        while messages.next().await.is_some() {
            taking.take();
        }
    });
    announce(url).await
}

async fn crowd(url: &str, count: usize) -> Result<(), Fault> {
    let mut joined = Vec::with_capacity(count);
    for number in 0..count {
        let client = connect(url).await?;
        let subscription = client.subscribe(format!("crowd.{number}")).await?;
        client.flush().await?;
        joined.push((client, subscription));
    }
    announce(url).await
}

#[derive(Clone)]
struct Caller(Client);

impl Link for Caller {
    async fn echo(&self, data: Bytes) -> Result<Bytes, Fault> {
        Ok(self.0.request("echo", data).await?.payload)
    }

    async fn stream(&self, messages: Vec<Bytes>) -> Result<(), Fault> {
        for message in messages {
            self.0.publish("take", message).await?;
        }
        Ok(self.0.flush().await?)
    }
}
