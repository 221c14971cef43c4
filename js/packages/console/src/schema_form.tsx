/** Forms for values of a JSON Schema: one field for each argument. */

import type { JSX } from "preact";
import { named, type Schema } from "tidewire";

/** One argument of a method. */
export interface Field {
	readonly name: string;
	readonly schema: Readonly<Record<string, unknown>>;
	readonly isRequired: boolean;
	readonly choices: readonly unknown[];
	readonly type: string;
}

/** The arguments that a schema names, in its order. */
export function fieldsOf(schema: Schema): Field[] {
	const { properties, required } = (typeof schema === "object" ? schema : {}) as {
		properties?: Readonly<Record<string, Schema>>;
		required?: readonly string[];
	};
	return Object.entries(properties ?? {}).map(([name, property]) => {
		const one = (typeof property === "object" ? property : {}) as Readonly<Record<string, unknown>>;
		const choices = Array.isArray(one.enum) ? one.enum : one.type === "boolean" ? [true, false] : [];
		const type = typeof one.type === "string" ? one.type : "json";
		return { name, schema: one, isRequired: required?.includes(name) ?? false, choices, type };
	});
}

export function SchemaForm(props: {
	fields: readonly Field[];
	texts: Readonly<Record<string, string>>;
	onChange: (texts: Readonly<Record<string, string>>) => void;
}): JSX.Element {
	const input = ({ name, type, choices, isRequired, schema }: Field): JSX.Element => {
		const change = (event: { currentTarget: { value: string } }): void =>
			props.onChange({ ...props.texts, [name]: event.currentTarget.value });
		const common = { value: props.texts[name] ?? "", required: isRequired, name, id: `argument-${name}` };
		if (choices.length > 0) {
			return (
				<select {...common} onChange={change}>
					<option value="">{isRequired ? "choose" : "default"}</option>
					{choices.map((choice) => (
						<option key={String(choice)} value={JSON.stringify(choice)}>
							{String(choice)}
						</option>
					))}
				</select>
			);
		}
		const placeholder = "default" in schema ? JSON.stringify(schema.default) : "";
		if (type === "number" || type === "integer") {
			const step = type === "integer" ? "1" : "any";
			return <input {...common} type="number" step={step} placeholder={placeholder} onInput={change} />;
		}
		if (type === "string") {
			return <input {...common} type="text" placeholder={placeholder} onInput={change} />;
		}
		return <textarea {...common} rows={3} placeholder={placeholder || "JSON"} onInput={change} />;
	};
	return (
		<>
			{props.fields.map((field) => (
				<label key={field.name} htmlFor={`argument-${field.name}`}>
					{field.name} <span class="dim">{`${field.type}${field.isRequired ? "" : ", optional"}`}</span>
					{input(field)}
				</label>
			))}
		</>
	);
}

/** The value of a field. */
export function jsonOf(name: string, text: string): unknown {
	try {
		return JSON.parse(text);
	} catch {
		throw new SyntaxError(`${name}: ${text} is no JSON: give a value such as 3, "text" or [1, 2]`);
	}
}

/**
 * The values of a form as arguments by name. Empty optional fields are left out.
 *
 * @throws SyntaxError if a field is no JSON; its text begins with the name of the field.
 */
export function valuesOf(fields: readonly Field[], texts: Readonly<Record<string, string>>): unknown {
	const values: Record<string, unknown> = {};
	for (const { name, type, choices, isRequired } of fields) {
		const text = texts[name] ?? "";
		if (text === "" && !(isRequired && type === "string")) {
			continue;
		}
		values[name] = type === "string" && choices.length === 0 ? text : jsonOf(name, text);
	}
	return named(values);
}
