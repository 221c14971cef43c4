//! Checks of a received frame: flags, head and payload must have the form of their kind.

use super::head_reader::HeadReader;
use super::{CallHead, Fields, Frame, Hello, Kind, PublishHead, SubscribeHead, Welcome, WireError, read_u16, read_u32};

impl Frame<'_> {
    /// Checks what [`read`](super::read) leaves open: that flags, head and payload have the form of
    /// the kind.
    ///
    /// The payload of values and the message of an error are the business of the two ends and are
    /// not looked into.
    ///
    /// # Errors
    /// [`WireError`] if a part breaks a rule of its kind; flags come first, then the head, then the
    /// payload.
    ///
    /// ```
    /// use tidewire_proto::wire::{Flags, Kind, read, write};
    ///
    /// let mut out = Vec::new();
    /// write(&mut out, Kind::Ping, Flags::URGENT, 7, |_| Ok(()), b"?")?;
    /// let error = read(&out, 65_536)?.unwrap().check().unwrap_err();
    /// assert_eq!(error.to_string(), "PING: 1 bytes follow the end of its form: leave them out");
    /// # Ok::<(), tidewire_proto::wire::WireError>(())
    /// ```
    pub fn check(&self) -> Result<(), WireError> {
        self.check_side()?;
        self.check_head()?;
        self.check_payload()
    }

    fn check_side(&self) -> Result<(), WireError> {
        let (kind, answer) = (self.kind.name(), self.flags.answer());
        let fix = match self.kind {
            Kind::Ok | Kind::Reply | Kind::Fail | Kind::Alive if !answer => "set this flag",
            Kind::Subscribe | Kind::Unsubscribe | Kind::Publish | Kind::Call | Kind::Cancel if answer => {
                "clear this flag"
            }
            _ => return Ok(()),
        };
        Err(WireError::NotAllowed { kind, field: "ANSWER", value: u64::from(answer), fix })
    }

    fn check_head(&self) -> Result<(), WireError> {
        let (kind, head) = (self.kind.name(), self.head);
        match self.kind {
            Kind::Hello => Hello::parse(self).map(|_| ()),
            Kind::Welcome => Welcome::parse(self).map(|_| ()),
            Kind::Error | Kind::Fail => read_u16(kind, head).map(|_| ()),
            Kind::Node | Kind::Credit | Kind::Window | Kind::Alive => read_u32(kind, head).map(|_| ()),
            Kind::Subscribe => SubscribeHead::parse(head).map(|_| ()),
            Kind::Publish => PublishHead::parse(head).map(|_| ()),
            Kind::Call => CallHead::parse(head).map(|_| ()),
            _ => HeadReader::new(kind, head).end(),
        }
    }

    fn check_payload(&self) -> Result<(), WireError> {
        let (kind, payload) = (self.kind.name(), self.payload);
        match self.kind {
            Kind::Hello | Kind::Welcome | Kind::Error | Kind::Chunk => Ok(()),
            Kind::Node | Kind::Subscribe => Fields::parse(kind, payload).map(|_| ()),
            Kind::Publish | Kind::Call | Kind::Reply | Kind::Fail | Kind::Item => self.check_whole(),
            _ => HeadReader::new(kind, payload).end(),
        }
    }

    fn check_whole(&self) -> Result<(), WireError> {
        if !self.flags.more() {
            return Ok(());
        }
        self.stated().map(|_| ())
    }
}
