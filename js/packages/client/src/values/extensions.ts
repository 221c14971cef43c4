/** The numbers of `spec/values.md`'s extensions. */
export const enum Ext {
	TIMESTAMP = -1,
	TUPLE = 1,
	SET = 2,
	FROZENSET = 3,
	BYTEARRAY = 4,
	BUFFER = 5,
	BYTEARRAY_BUFFER = 6,
	MOMENT = 7,
	LOCAL_TIME = 8,
	DATE = 9,
	TIME_OF_DAY = 10,
	DURATION = 11,
	DECIMAL = 12,
	UUID = 13,
	COMPLEX = 15,
	RECORD = 16,
	ENUM = 17,
	ERROR = 18,
	ARRAY = 19,
	SCALAR = 20,
	REFERENCE = 21,
}

/** The first byte of a value with buffers; it begins no MessagePack value. */
export const BLOB = 0xc1;
export const BLOB_VERSION = 1;
export const BLOB_HEAD = 16;
export const DAYS_MIN = -719_162;
export const DAYS_MAX = 2_932_896;
export const DAY_MICROS = 86_400_000_000;
