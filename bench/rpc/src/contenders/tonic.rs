//! gRPC of tonic, without a hub. Payloads travel as they are, without a protobuf around them.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, BufMut, Bytes};
use futures::future::BoxFuture;
use futures::stream;
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::http::{Request as HttpRequest, Response as HttpResponse};
use tonic::server::{ClientStreamingService, NamedService, UnaryService};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Request, Response, Status, Streaming};

use super::{no_crowd, no_hub};
use crate::Fault;
use crate::roles::{Options, Role, Service, announce, call};
use crate::workloads::Link;

pub async fn run(options: &Options) -> Result<(), Fault> {
    match options.role {
        Role::Crowd => no_crowd(),
        Role::Hub => no_hub(),
        Role::Service => serve().await,
        Role::Caller => {
            let channel = Channel::from_shared(options.url.clone())?.tcp_nodelay(true).connect().await?;
            call(Caller(channel), options).await
        }
    }
}

async fn serve() -> Result<(), Fault> {
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse()?)?.with_nodelay(Some(true));
    let url = format!("http://{}", incoming.local_addr()?);
    let server = Server::builder().add_service(Echo(Arc::default())).serve_with_incoming(incoming);
    tokio::spawn(server);
    announce(&url).await
}

/// Both methods, distinguished by their path.
#[derive(Clone)]
struct Echo(Arc<Service>);

impl NamedService for Echo {
    const NAME: &'static str = "bench.Echo";
}

impl tonic::codegen::Service<HttpRequest<Body>> for Echo {
    type Response = HttpResponse<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: HttpRequest<Body>) -> Self::Future {
        let service = self.0.clone();
        Box::pin(async move {
            let mut grpc = tonic::server::Grpc::new(Raw).max_decoding_message_size(usize::MAX);
            Ok(match request.uri().path() {
                "/bench.Echo/Take" => grpc.client_streaming(Take(service), request).await,
                _ => grpc.unary(Unary(service), request).await,
            })
        })
    }
}

struct Unary(Arc<Service>);

impl UnaryService<Bytes> for Unary {
    type Response = Bytes;
    type Future = Ready<Result<Response<Bytes>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        ready(Ok(Response::new(self.0.echo(request.into_inner()))))
    }
}

struct Take(Arc<Service>);

impl ClientStreamingService<Bytes> for Take {
    type Response = Bytes;
    type Future = BoxFuture<'static, Result<Response<Bytes>, Status>>;

    fn call(&mut self, request: Request<Streaming<Bytes>>) -> Self::Future {
        let service = self.0.clone();
        Box::pin(async move {
            let mut messages = request.into_inner();
            while messages.message().await?.is_some() {
                service.take();
            }
            Ok(Response::new(Bytes::new()))
        })
    }
}

#[derive(Clone)]
struct Caller(Channel);

impl Caller {
    async fn grpc(&self) -> Result<Grpc<Channel>, Fault> {
        let mut grpc = Grpc::new(self.0.clone()).max_decoding_message_size(usize::MAX);
        grpc.ready().await?;
        Ok(grpc)
    }
}

impl Link for Caller {
    async fn echo(&self, data: Bytes) -> Result<Bytes, Fault> {
        let path = PathAndQuery::from_static("/bench.Echo/Echo");
        Ok(self.grpc().await?.unary(Request::new(data), path, Raw).await?.into_inner())
    }

    async fn stream(&self, messages: Vec<Bytes>) -> Result<(), Fault> {
        let path = PathAndQuery::from_static("/bench.Echo/Take");
        let request = Request::new(stream::iter(messages));
        self.grpc().await?.client_streaming(request, path, Raw).await?;
        Ok(())
    }
}

/// Bytes as they are.
#[derive(Clone, Copy)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, data: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(data);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}
