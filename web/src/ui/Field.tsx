import clsx from 'clsx'
import { useId, type InputHTMLAttributes, type ReactNode, type SelectHTMLAttributes } from 'react'

interface FieldProps {
  label: ReactNode
  hint?: ReactNode
  error?: ReactNode
  className?: string
  /** Gets the id and the aria attributes that tie the control to its label, hint and error. */
  children: (props: { id: string; 'aria-describedby'?: string; 'aria-invalid'?: true }) => ReactNode
}

export function Field({ label, hint, error, className, children }: FieldProps) {
  const id = useId()
  const below = error || hint ? `${id}-below` : undefined
  return (
    <div className={className}>
      <label htmlFor={id} className="mb-1 block text-sm font-medium">{label}</label>
      {children({ id, 'aria-describedby': below, 'aria-invalid': error ? true : undefined })}
      {(error || hint) && (
        <p id={below} className={clsx('mt-1 text-xs', error ? 'text-fail' : 'text-faint')}>{error || hint}</p>
      )}
    </div>
  )
}

type TextProps = Omit<FieldProps, 'children'> & InputHTMLAttributes<HTMLInputElement>

export function TextField({ label, hint, error, className, ...rest }: TextProps) {
  return (
    <Field label={label} hint={hint} error={error} className={className}>
      {(props) => <input {...rest} {...props} className="control w-full" />}
    </Field>
  )
}

export interface Option { value: string; label: string }

interface SelectProps extends Omit<SelectHTMLAttributes<HTMLSelectElement>, 'onChange'> {
  options: readonly (Option | string)[]
  onChange: (value: string) => void
}

/** The platform's own select: it works by keyboard, by screen reader and by thumb. */
export function Select({ options, onChange, className, ...rest }: SelectProps) {
  return (
    <select {...rest} className={clsx('control pr-6', className)} onChange={(event) => onChange(event.target.value)}>
      {options.map((option) => {
        const { value, label } = typeof option === 'string' ? { value: option, label: option } : option
        return <option key={value} value={value}>{label}</option>
      })}
    </select>
  )
}

interface ComboProps extends Omit<FieldProps, 'children'>, Omit<InputHTMLAttributes<HTMLInputElement>, 'onChange' | 'children'> {
  options: readonly string[]
  onChange: (value: string) => void
}

/** Text with suggestions, by the platform: any value may be typed. */
export function ComboField({ label, hint, error, className, options, onChange, ...rest }: ComboProps) {
  const list = useId()
  return (
    <Field label={label} hint={hint} error={error} className={className}>
      {(props) => <>
        <input {...rest} {...props} list={list} autoComplete="off" className="control w-full" onChange={(event) => onChange(event.target.value)} />
        <datalist id={list}>{options.map((option) => <option key={option} value={option} />)}</datalist>
      </>}
    </Field>
  )
}

export function SelectField({ label, hint, error, className, ...rest }: Omit<FieldProps, 'children'> & SelectProps) {
  return (
    <Field label={label} hint={hint} error={error} className={className}>
      {(props) => <Select {...rest} {...props} className="w-full" />}
    </Field>
  )
}
